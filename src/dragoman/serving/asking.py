"""From a request to a question for the queue: everything in it is checked before any work."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

from dragoman.errors import UserError
from dragoman.inference.alignment.aligner import can_align
from dragoman.inference.constraints import OPTIONS as CONSTRAINTS
from dragoman.inference.predictions import Raw
from dragoman.serving.batches import Question
from dragoman.serving.compute import Item, Task
from dragoman.serving.constraints import take_constraints
from dragoman.serving.limits import Limits, RequestRefused
from dragoman.serving.models import Model, Models
from dragoman.serving.records import PredictOptions, PredictRequest, ScoreRequest, Source

# Options of System.predict that are not settings of the search.
NOT_SEARCHED = ("prefix", "alternatives", "attention", "alignments", "align_unit", "abstain")
REMEMBERED = 1_000  # combinations of options that were found to be possible


class Asker:
    """Makes questions of requests to some models."""

    def __init__(self, models: Models, limits: Limits) -> None:
        self.models, self.limits = models, limits
        self._check_options = lru_cache(REMEMBERED)(self._find_problem)

    def predict(
        self, request: PredictRequest, on_event: Callable[[bytes], None] | None = None
    ) -> tuple[Model, Question]:
        """Return the question of a request whose inputs are texts. ``on_event`` gets the tokens of a stream."""
        model = self.models.find(request.model)
        inputs = self._texts(model, request.inputs)
        options = self._options(model, request, request.stream)
        task = Task("predict", model.id, options, request.stream)
        items = [Item(source, key) for key, source in enumerate(inputs)]
        return model, Question(task, items, on_event)

    def predict_files(
        self, request: PredictOptions, inputs: Sequence[tuple[Raw, Mapping[str, str]]]
    ) -> tuple[Model, Question]:
        """Return the question of an upload: each input, and the names of its files by their paths."""
        model = self.models.find(request.model)
        if not inputs:
            raise UserError("the form has no input; add a part for each source")
        self.limits.check("texts", len(inputs), "inputs")
        for source, names in inputs:
            self._check_source(model, {name: text for name, text in as_mapping(source).items() if text not in names})
        task = Task("predict", model.id, self._options(model, request, False))
        return model, Question(task, [Item(source, key, None, names) for key, (source, names) in enumerate(inputs)])

    def score(self, request: ScoreRequest) -> tuple[Model, Question]:
        """Return the question of a request to score."""
        model = self.models.find(request.model)
        inputs = self._texts(model, request.inputs)
        targets: Sequence[str | None]
        if model.system.is_language_model:
            if request.targets is not None:
                raise UserError("targets: this model is a language model, which scores its inputs; leave them out")
            targets = [None] * len(inputs)
        else:
            if request.targets is None:
                raise UserError("targets: the target of each input is missing; only a language model takes none")
            targets = [request.targets] if isinstance(request.targets, str) else request.targets
            if len(targets) != len(inputs):
                raise UserError(f"targets: {len(targets):,} for {len(inputs):,} inputs; give one for each input")
            for target in targets:
                self.limits.check_text("a target", target)
        pairs = enumerate(zip(inputs, targets, strict=True))
        return model, Question(Task("score", model.id), [Item(text, key, target) for key, (text, target) in pairs])

    def translate(self, model: Model, texts: Sequence[str], alternatives: int) -> Question:
        """Return the question of a request to translate."""
        if len(model.names) != 1 or model.files:
            raise UserError(f"{model.id}: reads {', '.join(model.names)}, not one text, so it cannot translate")
        self.limits.check("n_best", 1 + alternatives, "alternatives")
        inputs = self._texts(model, list(texts))
        options = json.dumps({"n_best": 1 + alternatives} if alternatives else {}, sort_keys=True)
        return Question(Task("translate", model.id, options), [Item(text, key) for key, text in enumerate(inputs)])

    # ---- checks

    def _texts(self, model: Model, inputs: Source | list[Source]) -> list[Raw]:
        listed: list[Raw] = list(inputs) if isinstance(inputs, list) else [inputs]
        self.limits.check("texts", len(listed), "inputs")
        if model.files:
            names = ", ".join(sorted(model.files))
            raise RequestRefused(
                422, f"{model.id}: reads files ({names}); upload them as multipart/form-data, with a part for each"
            )
        for source in listed:
            self._check_source(model, source)
        return listed

    def _check_source(self, model: Model, source: Raw) -> None:
        """Refuse texts that are too long, and sources that the model does not have."""
        self.limits.check_texts(source)
        if isinstance(source, str):
            if len(model.names) > 1:
                raise UserError(f"inputs: {model.id} reads {', '.join(model.names)}; give an object with these names")
            return
        wanted = set(model.names) - model.files
        if not model.names:
            raise UserError(f"inputs: {model.id} is a language model; give it texts")
        if source.keys() != wanted:
            given = ", ".join(sorted(source))[:200]
            raise UserError(f"inputs: {model.id} reads {', '.join(model.names)}, but got {given or 'nothing'}")

    def _options(self, model: Model, request: PredictOptions, is_followed: bool) -> str:
        """Return the options of a request as JSON, after checking that they are possible."""
        limits = self.limits
        for name, number in (
            ("beam", request.beam),
            ("samples" if request.sample else "n_best", request.n_best),
            ("max_length", request.max_length),
            ("max_length", request.min_length),
            ("alternatives", request.alternatives),
            ("forbidden", len(request.forbid or ())),
        ):
            limits.check(name, number)
        limits.check_text("forbid", " ".join(request.forbid or ()))
        if request.prefix is not None:
            if model.system.is_language_model:
                raise UserError("prefix: a language model's inputs are what its outputs begin with; put it there")
            limits.check_text("prefix", request.prefix)
        constraints = take_constraints(request, limits)
        given = {
            name: value
            for name, field in PredictOptions.model_fields.items()
            if name not in ("model", *CONSTRAINTS) and (value := getattr(request, name)) != field.default
        }
        options = json.dumps(given, sort_keys=True)
        if (problem := self._check_options(model.id, options, is_followed)) is not None:
            raise UserError(problem)
        return json.dumps(given | constraints, sort_keys=True) if constraints else options

    def _find_problem(self, model: str, options: str, is_followed: bool) -> str | None:
        """Return why options are impossible, or None."""
        given = json.loads(options)
        settings = {name: value for name, value in given.items() if name not in NOT_SEARCHED}
        system = self.models.by_id[model].system
        try:
            config = system.search_config(**settings)
            if config.ctc and not system.recipe.training.ctc:
                return f"ctc: {model} was trained without CTC; leave it out"
            if given.get("alignments") and not can_align(system.session()):
                return f"alignments: {model} shows no attention by which its outputs could be aligned; leave it out"
            if "abstain" in given and system.confidence is None:
                return f"abstain: {model} has no confidence, which dragoman calibrate fits; leave it out"
            if "abstain" in given and is_followed:
                return "abstain: the confidence is known when all tokens have been sent; ask without stream"
            if is_followed:
                config.refuse_many_hypotheses()
        except UserError as error:
            return str(error)
        return None


def as_mapping(source: Raw) -> Mapping[str, str]:
    """Return an input by the names of its sources; of a lone text, the name does not matter."""
    return {"": source} if isinstance(source, str) else source
