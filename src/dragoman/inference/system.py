"""A trained run, ready to answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from dragoman.data.copying import Copier
from dragoman.data.corpus.files import Cache
from dragoman.data.modality import Modality
from dragoman.data.reading.rows import ColumnPlace
from dragoman.data.tokenizers import Tokenizer
from dragoman.data.vocabulary import BOS, PAD, UNK
from dragoman.errors import UserError
from dragoman.files import write_tensors
from dragoman.inference.constraints import OPTIONS as CONSTRAINTS
from dragoman.inference.constraints import read_constraints
from dragoman.inference.engine.choice import choose_engine
from dragoman.inference.engine.contract import Engine, ModelOutline
from dragoman.inference.engine.single import Inputs
from dragoman.inference.predictions import Prediction, Scored
from dragoman.inference.requests import (
    Forbidden,
    OneInput,
    as_inputs,
    as_text,
    forbid_token_runs,
    merge_search_settings,
    refuse_unknown,
)
from dragoman.inference.session import Session
from dragoman.inference.stored import StoredModel, outline_of, read_outline
from dragoman.recipe.schema import Recipe
from dragoman.runs.alignment import AlignmentChoice
from dragoman.runs.confidence import read_confidence, weights_digest
from dragoman.runs.lengths import LengthLimits
from dragoman.runs.setup import CONFIG, FORMAT, Setup
from dragoman.runs.weights import KIND, WEIGHTS, named_weights, weights_metadata
from dragoman.runtime.confidence import Confidence
from dragoman.search.options import SearchConfig
from dragoman.tables import Rows, html_table, shorten

if TYPE_CHECKING:  # a run that the native library computes for is loaded without torch
    import torch

    from dragoman.drawing.attention import AttentionView
    from dragoman.nn.model import Model

STREAM_OPTIONS = ("batch", "attention", "trace", "maps", "alignments", "align_unit", "prefix", "source", "first",
                  "step", "keep_arrays", "probabilities", "cancelled", "workers", "abstain", "keys", "alternatives",
                  "on_token")  # fmt: skip
INTERNAL_OPTIONS = ("first", "step", "keep_arrays", "cancelled")  # of these: for programs that ask in parts


@dataclass(frozen=True, eq=False, repr=False)
class System:
    """What a trained run can do. Load one with ``dragoman.load``, or get one from ``dragoman.train``.

    A system never changes, and many threads may ask it at once: each gets what it would get alone.

    >>> system = dragoman.load("runs/pairs")
    >>> system
    System(auto, ... parameters, runs/pairs)
    >>> isinstance(system("some text"), str)
    True
    """

    recipe: Recipe
    modalities: Mapping[str, Modality]
    target: Tokenizer
    network: Model | StoredModel  # of several runs put together, that of the first
    lengths: LengthLimits
    folder: Path | None = None
    run: str | None = None  # the name of the run that it was loaded from, which its files carry
    combined: Engine | None = None  # what computes, where it is not the model alone
    classes: tuple[str, ...] = ()  # of a classifier: all its outputs
    columns: Mapping[str, ColumnPlace] = field(default_factory=dict)  # where each side was in the training table
    caches: Mapping[str, Cache] = field(default_factory=dict)  # of sources that are files; by default nothing is cached
    known: ModelOutline | None = None  # what is told about the model before it is loaded
    engine_reason: str = ""  # why this engine computes, where it was chosen
    made_of: tuple[str, ...] = ()  # the SHA-256 of the weights of each run in it, as far as they are saved
    confidence: Confidence | None = None  # how probable it is that an output is right, if that was fitted

    @cached_property
    def model(self) -> Model:
        """Return the trained model, with torch. It is loaded when it is first needed."""
        return self.network.load() if isinstance(self.network, StoredModel) else self.network

    @cached_property
    def outline(self) -> ModelOutline:
        """Return what is told about the model."""
        return outline_of(self.model) if self.known is None else self.known

    @cached_property
    def engine(self) -> Engine:
        """Return what computes the answers."""
        if self.combined is not None:
            return self.combined
        from dragoman.inference.engine.torch import TorchEngine

        return TorchEngine(self.model, self.inputs)

    @cached_property
    def copier(self) -> Copier | None:
        """Return what says which symbols of a source an output copies, if the model copies."""
        if not self.recipe.copying:
            return None
        (modality,) = self.modalities.values()
        assert modality.tokenizer is not None
        return Copier(modality.tokenizer, self.target)

    def target_for(self, texts: Mapping[str, str]) -> Tokenizer:
        """Return the target's tokeniser for the outputs of an input, by source: it writes copies of its symbols."""
        if self.copier is None:
            return self.target
        (source,) = texts.values()
        return self.copier.writer(source)

    def encode_target(self, target: str, texts: Mapping[str, str]) -> list[int]:
        """Return the ids of a target of an input, by source."""
        if self.copier is None:
            return self.target.encode(target)
        (source,) = texts.values()
        return self.copier.encode(source, target)

    @property
    def inputs(self) -> Inputs:
        """Return what an engine has to know about the inputs of this run."""
        return Inputs(self.modalities, self.lengths, self.recipe.training.chunk, self.name, self.caches)

    @property
    def name(self) -> str:
        """Return what messages call this system: the path of its folder, if it has one."""
        return str(self.folder) if self.folder else "this system"

    @property
    def device(self) -> torch.device:
        """Return the device that the model is on."""
        return self.engine.device

    @cached_property
    def alignment_choice(self) -> AlignmentChoice:
        """Return how alignments are read from attention: as training has chosen, or else by the mean of all maps."""
        found = None if self.folder is None else AlignmentChoice.read(self.folder, self.run or "")
        return AlignmentChoice() if found is None else found

    def describe_engine(self) -> str:
        """Return what computes the answers and where, in words, and why if it was chosen."""
        reason = f" ({self.engine_reason})" if self.engine_reason else ""
        return f"engine {self.engine.name} on {self.engine.place}{reason}"

    @property
    def is_language_model(self) -> bool:
        """Tell whether the run has no source. Then its inputs are prompts, and texts alone can be scored."""
        return self.recipe.is_language_model

    @property
    def strides(self) -> dict[str, int]:
        """Return how many positions of each source the encoder makes one state of."""
        return dict(self.outline.strides)

    def __call__(self, source: OneInput) -> str:
        """Return the best output for one input."""
        prediction = self.predict(source)
        if not isinstance(prediction, Prediction):
            raise UserError("a call takes one input and returns one text; for a list use system.predict(list)")
        if prediction.error is not None:
            raise UserError(prediction.error)
        return prediction.text

    def __repr__(self) -> str:
        members = self.engine.describe_members()
        if members is not None:
            return f"System({members})"
        return f"System({self.recipe.preset}, {self.outline.parameters:,} parameters, {self.folder})"

    def _repr_html_(self) -> str:
        return html_table(
            [
                {"setting": name, "value": value}
                for name, value in (
                    ("run", str(self.folder) if self.folder else ""),
                    ("preset", self.recipe.preset),
                    *((name, type(modality).__name__.lower()) for name, modality in self.modalities.items()),
                    ("target", f"{self.target.size:,} {self.target.kind}"),
                    ("classes", shorten(", ".join(self.classes), 80)),
                    ("parameters", f"{self.outline.parameters:,}"),
                    ("device", self.engine.place),
                    ("engine", self.engine.name),
                    ("combined", self.engine.describe_members()),
                )
                if value
            ]
        )

    # ---- asking

    def session(self, **settings: Any) -> Session:
        """Return a session with the run's own search settings, changed by ``settings`` such as ``beam``.

        Constraints on the outputs are read here, once for all that the session is asked: ``lexicon`` (a file with one
        entry per line, or a list) and ``lexicon_words``, ``match`` (a regular expression), ``grammar`` (Lark: its text,
        or a ``Path``), ``json_schema``, ``glossary`` (a file, or a mapping), ``keep`` (a regular expression, or
        several), ``known`` (a file, or a mapping from sources to answers).
        """
        given = {name: settings.pop(name) for name in CONSTRAINTS if name in settings}
        files = {name: modality.is_file for name, modality in self.modalities.items()}
        if self.copier is not None and any(given[name] for name in given if name != "known"):
            raise UserError(
                f"{self.name}: this run copies symbols of its sources, which constraints cannot read; ask without "
                "constraints, or train without copying"
            )
        constraints = read_constraints(self.target, files, self.is_language_model, given)
        return Session(self, self.search_config(**settings), constraints)

    @overload
    def predict(self, sources: OneInput, **options: Any) -> Prediction: ...

    @overload
    def predict(self, sources: Iterable[OneInput], **options: Any) -> Rows[Prediction]: ...

    def predict(self, sources: OneInput | Iterable[OneInput], **options: Any) -> Prediction | Rows[Prediction]:
        """Return the prediction for one input, or a list of predictions for several, in order.

        An input is a text, a path, or for several sources a mapping from their names. The rows of a table are inputs
        too; ``source`` names their columns, if they have other names than in training. ``options`` are those of
        ``Session.stream`` (batch, attention, trace, maps, prefix, …); all others are search settings of this call:
        beam, n_best, normalize, sample, forbid, …, and constraints (see ``session``). With ``sample=True``, ``n_best``
        is the number of samples.

        An empty input has an empty output, without asking the model. A language model's inputs are prompts: each output
        is the prompt and its continuation, and an empty prompt is the start of a text. A file that cannot be read has
        an empty output as well, and the prediction's ``error`` says why.
        """
        asked, settings = split_options(options)
        return self.session(**settings).predict(sources, **asked)

    def stream(self, sources: OneInput | Iterable[OneInput], **options: Any) -> Iterator[Prediction]:
        """Yield the predictions of ``predict`` as soon as each batch is done.

        The options are those of ``Session.stream``; all others are search settings.
        """
        asked, settings = split_options(options)
        return self.session(**settings).stream(sources, **asked)

    @overload
    def score(  # type: ignore[overload-overlap]
        self, sources: OneInput, targets: str | None = None, *, batch: int = 64, running: bool | None = None
    ) -> Scored: ...

    @overload
    def score(
        self,
        sources: Iterable[OneInput],
        targets: Iterable[str] | None = None,
        *,
        batch: int = 64,
        running: bool | None = None,
    ) -> Rows[Scored]: ...

    def score(
        self,
        sources: OneInput | Iterable[OneInput],
        targets: Iterable[str] | None = None,
        *,
        batch: int = 64,
        running: bool | None = None,
    ) -> Scored | Rows[Scored]:
        """Return the log-probability of a given target, or of a list of them, end symbol included.

        A language model scores texts and takes no targets. ``running``: the texts are the lines of one text, each
        conditioned on the lines before it. None: as in training.
        """
        return self.session().score(sources, targets, batch=batch, running=running)  # type: ignore[arg-type]

    def search_config(self, **settings: Any) -> SearchConfig:
        """Return the run's own search settings, changed by ``settings``; what it never learnt to write is forbidden.

        ``forbid``, a text or a list of texts that no output may contain, becomes settings for their tokens.
        """
        refuse_unknown(settings, ["forbid", *CONSTRAINTS])
        forbid = settings.pop("forbid", None)
        texts = [as_text(text, "what is forbidden") for text in as_inputs(forbid or [], "what is forbidden")]
        if texts:
            settings = self.forbidding(texts) | settings
        if self.classes:  # a classifier chooses the most probable of its classes
            left = [label for label in self.classes if not any(text in label for text in texts)]
            if not left:
                raise UserError("forbid: every class of this run contains what is forbidden; forbid less")
            if texts and len(left) == len(self.classes):
                raise UserError(f"forbid: no label of this run contains {' or '.join(map(repr, texts))}; leave it out")
            own = {"only": tuple(tuple(self.target.encode(label)) for label in left), "normalize": "none"}
            settings = own | {name: value for name, value in settings.items() if value is not None}
        return merge_search_settings(self.recipe.search, settings, never=(PAD, UNK, BOS))

    def forbidding(self, texts: Sequence[str]) -> dict[str, Any]:
        """Return search settings under which no output contains these texts."""
        forbidden = Forbidden(self.target, tuple(text for text in texts if text.strip()), self.recipe.copying)
        if not self.classes:  # labels are compared as texts
            forbidden.refuse_without_effect()
        return forbid_token_runs(self.recipe.search, forbidden.token_runs())

    def describe_forbidden(self, texts: Sequence[str]) -> list[str]:
        """Say of each text that no output may contain where forbidding its tokens does less than that."""
        return [] if self.classes else Forbidden(self.target, tuple(texts), self.recipe.copying).notes()

    def token_probabilities(self, log_probs: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return the probabilities of tokens as people read them: without label smoothing, if that was fitted."""
        given = np.asarray(log_probs, np.float64)
        return np.exp(given if self.confidence is None else self.confidence.log_probs(given))

    def view_attention(self, prediction: Prediction) -> AttentionView:
        """Return where each token of a prediction's best output looked, ready to be drawn."""
        from dragoman.inference.attention_view import view_attention

        return view_attention(prediction, self.name, self.strides, self.outline.reads_source)

    def with_caches(self, caches: Mapping[str, Cache]) -> System:
        """Return the same system, which decodes each file once as far as the caches of its sources hold it."""
        return replace(self, caches=caches)

    def with_confidence(self) -> System:
        """Return the same system with the confidence that is in its folder, if it was fitted with these weights."""
        if self.folder is None or self.is_language_model:
            return self
        made_of = (weights_digest(self.folder),)
        return replace(self, made_of=made_of, confidence=read_confidence(self.folder, made_of))

    # ---- folder

    def save(self, folder: Path | str) -> Path:
        """Write all that prediction needs. Each file is replaced whole: another program may read at any time."""
        if self.engine.describe_members() is not None:
            raise UserError(
                "what is put together from several runs has no folder of its own; keep the folders of the runs"
            )
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        run = self.save_setup(folder)
        metadata = {"format": str(FORMAT), **weights_metadata(KIND, run)}
        write_tensors(folder / WEIGHTS, named_weights(self.model), metadata)
        return folder

    def save_setup(self, folder: Path) -> str:
        """Write config and tokenisers, what is known before training, and return the name of the run."""
        from dragoman.runs.folder import recorded_run_name

        setup = Setup(self.recipe, self.modalities, self.target, self.lengths, self.columns, self.classes)
        recorded = recorded_run_name(folder)
        return setup.write(folder, self.run if recorded is None else recorded)

    def in_folder(self, folder: Path) -> System:
        """Return the same system, known by the folder it was saved in, and without caches."""
        return replace(self, folder=folder, caches={})

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto", engine: str = "torch") -> System:
        """Load a run from its folder alone. Nothing in it is executed. ``engine``: what computes its answers."""
        folder = Path(folder)
        if not (folder / CONFIG).exists():
            Setup.read(folder)  # says what the folder is
        choice = choose_engine(folder, device, engine)
        setup = Setup.read(folder, reads_network=choice.container is None)
        stored = StoredModel(folder, device, setup if choice.container is None else None)
        given = setup.recipe, setup.modalities, setup.target, stored, setup.lengths
        system = cls(*given, folder, setup.run, classes=setup.classes, columns=setup.columns)
        system = replace(system, engine_reason=choice.reason).with_confidence()
        if choice.container is not None:
            from dragoman.inference.engine.native import open_engine

            system = replace(system, known=read_outline(choice.container))
            # `system` has no engine but torch's, which is made when something asks for it
            native = open_engine(system.inputs, system.target, choice.container, lambda: system.engine)
            return replace(system, combined=native)
        stored.load()  # so that a damaged file is refused now
        if choice.name == "torch":
            return system
        if choice.name == "ctranslate2":
            from dragoman.inference.engine import ctranslate2

            return replace(system, combined=ctranslate2.open_engine(system.inputs, folder))
        from dragoman.inference.engine.onnx import open_export
        from dragoman.inference.engine.programs import ProgramEngine, ReferenceRunner, Runner

        runner: Runner = ReferenceRunner(system.model.lower()) if engine == "numpy" else open_export(folder)
        return replace(system, combined=ProgramEngine(system.inputs, runner, engine))


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of ``Session.stream``, and the search settings."""
    known = [name for name in STREAM_OPTIONS if name not in INTERNAL_OPTIONS]
    refuse_unknown(options, [*known, "forbid", *CONSTRAINTS], INTERNAL_OPTIONS)
    asked = {name: value for name, value in options.items() if name in STREAM_OPTIONS}
    return asked, {name: value for name, value in options.items() if name not in STREAM_OPTIONS}
