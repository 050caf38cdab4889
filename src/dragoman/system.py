"""A trained system: raw input → text, scores, attention, trace. The only place where strings meet tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dragoman import encoding, scoring
from dragoman.answering import Given, in_batches
from dragoman.asking import Asked, asked_for, by_name, forbidding, plain
from dragoman.building import build_model
from dragoman.config import TooLong
from dragoman.contracts import Modality
from dragoman.data.batching import Encoded
from dragoman.data.examples import SOURCE, Example, tidy
from dragoman.data.running import RunningText
from dragoman.data.stored import Pending
from dragoman.data.tokenizers import Tokenizer
from dragoman.data.vocabulary import BOS, EOS, PAD, UNK
from dragoman.errors import UserError
from dragoman.files import write_tensors
from dragoman.nn.model import Model
from dragoman.predictions import Lengths, Prediction, Raw, Scored
from dragoman.recipe import Recipe
from dragoman.replies import empty, reply, with_self_attention
from dragoman.run_setup import FORMAT, Setup
from dragoman.search import CTCPrefix, Decodes, Result, SearchConfig, WithCTC, search, told_by
from dragoman.training.checkpoint import load_weights, named_weights, read_tensors
from dragoman.training.ctc import BLANK
from dragoman.training.machine import pick_device
from dragoman.types import Padded


class System:
    """Load one with ``dragoman.load``, or get one from ``dragoman.train``; call it with a string."""

    def __init__(
        self,
        recipe: Recipe,
        modalities: Mapping[str, Modality],
        target: Tokenizer,
        model: Model,
        lengths: Lengths,
        folder: Path | None = None,
    ) -> None:
        self.recipe, self.modalities, self.target = recipe, dict(modalities), target
        self.model, self.lengths, self.folder = model, lengths, folder
        self.device = next(model.parameters()).device
        self.forced: Decodes = model  # what scores a given target: the model, or several that answer as one

    def __call__(self, source: Raw) -> str:
        prediction = self.predict([source])[0]
        if prediction.error is not None:
            raise UserError(prediction.error)
        return prediction.text

    def __repr__(self) -> str:
        return f"System({self.recipe.preset}, {self.model.parameters_count:,} parameters, {self.folder})"

    @property
    def is_language_model(self) -> bool:
        """Has this run no source? Then its inputs are prompts, and texts alone can be scored."""
        return self.recipe.is_language_model

    # ---- from strings to strings

    def predict(
        self, sources: Sequence[Raw], *, batch: int = 64, attention: bool = True, trace: bool = True, **settings: Any
    ) -> list[Prediction]:
        """One prediction an input, in order. ``settings`` change the run's search: beam, n_best, normalize, sample, …

        An empty input has an empty output, without asking the model. A language model's inputs are prompts: each output
        is the prompt and what follows it, and an empty prompt is the start of a text. With ``maps=True`` predictions
        tell the self-attention of both sides too. A file that cannot be read has an empty output as well, and the
        prediction's ``error`` says why.
        """
        return list(self.stream(sources, batch=batch, attention=attention, trace=trace, **settings))

    def stream(
        self,
        sources: Sequence[Raw],
        *,
        batch: int = 64,
        attention: bool = True,
        trace: bool = True,
        maps: bool = False,
        prefix: Sequence[str] | None = None,
        first: int = 0,
        **settings: Any,
    ) -> Iterator[Prediction]:
        """As ``predict``, given out as soon as the batch is done.

        ``first`` is the number of the first input where these are a part of many: sampling draws by an input's number.
        """
        if isinstance(sources, str):
            raise UserError("predict takes a list of texts; for one text call the system itself: system(text)")
        if prefix is not None and len(prefix) != len(sources):
            raise UserError(f"a forced prefix is needed for each input: got {len(prefix)} for {len(sources)} inputs")
        sources = [plain(source) for source in sources]
        config = self.search_config(**settings)
        raws = [self._tidied(source) for source in sources]
        if self.is_language_model:
            if prefix is not None:
                raise UserError("a language model's inputs are what its outputs begin with: put the prefix there")
            prefix = [raw[SOURCE] for raw in raws]
        given = Given(sources, [self._tensors(raw) for raw in raws], prefix)
        answerable = [row for row, raw in enumerate(raws) if not self.modalities or any(raw.values())]

        def answer(loaded: Mapping[int, Mapping[str, Tensor]]) -> dict[int, Prediction]:
            rows = list(loaded)
            forced = None if prefix is None else [self.target.encode(prefix[row]) for row in rows]
            limits = [self._limit(given.tensors[row]) for row in rows]
            asked = Asked([loaded[row] for row in rows], limits, [first + row for row in rows], forced)
            found = {}
            for row, result in zip(rows, self._search_each(asked, config, attention), strict=True):
                if isinstance(result, TooLong):
                    found[row] = empty(sources[row], str(result))
                    continue
                begins = None if prefix is None else prefix[row]
                found[row] = self._reply(sources[row], raws[row], result, trace, begins)
                if maps:
                    found[row] = self._with_maps(found[row], loaded[row], result)
            return found

        self.model.eval()
        yield from in_batches(given, answerable, batch, answer)

    def score(
        self,
        sources: Sequence[Raw],
        targets: Sequence[str] | None = None,
        *,
        batch: int = 64,
        running: bool | None = None,
    ) -> list[Scored]:
        """Log-probability of given targets, end symbol included. For a language model: of given texts, and no targets.

        ``running``: are the texts the lines of one text, each read behind those before it? None: as in training.
        """
        if self.is_language_model:
            return self._score_texts(sources, targets, batch, self.recipe.data.running if running is None else running)
        if targets is None:
            raise UserError("scoring needs targets: system.score(sources, targets); only a language model scores texts")
        if len(sources) != len(targets):
            raise UserError(f"scoring needs one target a source: got {len(targets)} for {len(sources)}")
        tensors = [self._tensors(self._tidied(plain(source))) for source in sources]
        return self._force(tensors, [[*self.target.encode(tidy(target)), EOS] for target in targets], batch)

    def search_config(self, **settings: Any) -> SearchConfig:
        """The run's own search settings with some of them changed; what the model never learnt to say is forbidden."""
        return asked_for(self.recipe.search, settings, never=(PAD, UNK, BOS))

    def forbidding(self, texts: Sequence[str]) -> dict[str, Any]:
        """Search settings by which no output holds these: as single tokens, and as runs where they are cut up."""
        return forbidding(self.recipe.search, [self.target.encode(tidy(text)) for text in texts if text.strip()])

    # ---- examples as tensors, for training and evaluation

    def encoded(self, examples: Sequence[Example], folder: Path | None = None) -> Encoded:
        """``folder``: of the run, where decoded files may be kept."""
        room = encoding.room(self.model, self.recipe.max_tokens, len(self.modalities))
        return encoding.encoded(examples, self.modalities, self.target, self.recipe.data.cache, folder, room)

    def training_data(self, examples: Sequence[Example], folder: Path | None = None) -> Encoded | RunningText:
        """What the trainer reads: rows, or one running text."""
        if not self.recipe.data.running:
            return self.encoded(examples, folder)
        return encoding.running(examples, self.target, self.recipe.training.chunk, self.model.decoder.endless)

    # ---- folder

    def save(self, folder: Path | str) -> Path:
        """All that prediction needs. Another program may read the folder at any time: files are replaced whole."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.save_setup(folder)
        write_tensors(folder / "model.safetensors", named_weights(self.model), {"format": str(FORMAT)})
        self.folder = folder
        return folder

    def save_setup(self, folder: Path) -> None:
        """Config and tokenisers: what is known before training."""
        Setup(self.recipe, self.modalities, self.target, self.lengths).write(folder)

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto") -> System:
        """A run, from its folder alone. Nothing in it is executed."""
        folder = Path(folder)
        system = cls.load_setup(folder)
        load_weights(system.model, read_tensors(folder / "model.safetensors"), folder / "model.safetensors")
        system.device = pick_device(device)
        system.model.to(system.device).eval()
        return system

    @classmethod
    def load_setup(cls, folder: Path) -> System:
        """As ``load``, with fresh weights."""
        setup = Setup.read(folder)
        with torch.random.fork_rng(devices=[]):  # loading leaves the caller's random numbers as they were
            model = build_model(setup.recipe, setup.modalities, setup.target)
        return cls(setup.recipe, setup.modalities, setup.target, model, setup.lengths, folder)

    # ---- inside

    def _tidied(self, source: Raw) -> dict[str, str]:
        return by_name(source, None if self.is_language_model else tuple(self.modalities))

    def _score_texts(
        self, texts: Sequence[Raw], targets: Sequence[str] | None, batch: int, running: bool
    ) -> list[Scored]:
        if isinstance(texts, str) or targets is not None:
            raise UserError("a language model scores a list of texts, and nothing else: system.score(texts)")
        gold = [[*self.target.encode(self._tidied(plain(text))[SOURCE]), EOS] for text in texts]
        if not running or not gold:
            return self._force([{} for _ in gold], gold, batch)
        self.model.eval()
        return self._scored(
            scoring.running(
                self.forced, self._encode, gold, chunk=self.recipe.training.chunk,
                carries=self.model.decoder.endless, batch=batch,
            )
        )  # fmt: skip

    def _force(
        self, tensors: Sequence[Mapping[str, Tensor | Pending]], gold: Sequence[Sequence[int]], batch: int
    ) -> list[Scored]:
        self.model.eval()
        return self._scored(scoring.row_by_row(self.forced, self._encode, tensors, gold, batch))

    def _scored(self, found: Iterable[scoring.Told]) -> list[Scored]:
        return [Scored(float(sum(numbers)), tuple(self.target.pieces(tokens)), numbers) for tokens, numbers in found]

    def _tensors(self, raw: Mapping[str, str]) -> dict[str, Tensor | Pending]:
        """Files are read later, a batch at a time."""
        return {
            name: Pending(modality, raw[name]) if modality.is_file else modality.tensor(raw[name])
            for name, modality in self.modalities.items()
        }

    def _limit(self, tensors: Mapping[str, Tensor | Pending]) -> int:
        """The most tokens an output may have."""
        return self.lengths.limit(max((len(tensor) for tensor in tensors.values()), default=0))

    def _padded(self, tensors: Sequence[Mapping[str, Tensor]]) -> dict[str, Padded]:
        return {
            name: modality.collate([row[name] for row in tensors]).to(self.device)
            for name, modality in self.modalities.items()
        }

    def _encode(self, tensors: Sequence[Mapping[str, Tensor]]) -> Any:
        return self.model.encode(self._padded(tensors))

    def _search_each(self, asked: Asked, config: SearchConfig, attention: bool) -> list[Result | TooLong]:
        """As ``_search``; where one of many is too long for the model, only that one has no result."""
        try:
            return list(self._search(asked, config, attention))
        except TooLong as error:
            if len(asked) == 1:
                return [error]
        return [found for one in asked.one_by_one() for found in self._search_each(one, config, attention)]

    def _search(self, asked: Asked, config: SearchConfig, attention: bool) -> list[Result]:
        limits = asked.limits
        if self.is_language_model and asked.prefix is not None:  # so much more than the prompt
            limits = [limit + len(prompt) for limit, prompt in zip(limits, asked.prefix, strict=True)]
        decoder = self.searched(config)
        with torch.inference_mode():
            memory = self._encode(asked.tensors)
            results = search(
                decoder,
                memory,
                len(asked),
                config,
                bos=BOS,
                eos=EOS,
                limits=limits,
                prefix=asked.prefix,
                keys=asked.keys,
                need_attention=attention and bool(self.model.decoder.maps),
            )
            if decoder is self.forced:
                return results
            return told_by(self.forced, memory, results, bos=BOS, eos=EOS, config=config)

    def searched(self, config: SearchConfig) -> Decodes:
        """What answers a search. Where it is not what scores a given target, its numbers are to rank outputs by:
        ``score`` and the trace have them, but ``log_probs`` of an output stay the model's own."""
        if not config.ctc:
            return self.forced
        return WithCTC(self.forced, self.heard, config.ctc)

    @property
    def heard(self) -> Decodes:
        """What CTC thinks of the next token."""
        if self.model.ctc is None:
            name = f"{self.folder}" if self.folder else "this system"
            raise UserError(
                f"search.ctc: {name} was trained without CTC (training.ctc) and has none to ask; set it to 0"
            )
        return CTCPrefix(self.model.ctc, blank=BLANK, bos=BOS, eos=EOS)

    def _reply(
        self, source: Raw, raw: Mapping[str, str], result: Result, trace: bool, prefix: str | None
    ) -> Prediction:
        axes = {name: modality.axis(raw[name], self._stride(name)) for name, modality in self.modalities.items()}
        return reply(source, axes, result, self.target, trace, prefix)

    def _with_maps(self, prediction: Prediction, tensors: Mapping[str, Tensor], result: Result) -> Prediction:
        return with_self_attention(prediction, result, self.model, self._padded([tensors]))

    def _stride(self, name: str) -> int:
        return self.model.encoders[name].stride  # type: ignore[return-value]
