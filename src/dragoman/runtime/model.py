"""A model file, ready to answer: text in, text out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from .confidence import GIVEN_PREFIX, Confidence, describe_differences, search_facts
from .container import Container
from .errors import TooLong, UserError
from .opened import OpenedModel, SourceForm
from .predictions import Output, Prediction
from .search import NativeHypothesis
from .settings import SearchOptions, read_settings
from .tokenizer import EOS, NativeTokenizer

Source: TypeAlias = "str | np.ndarray | Mapping[str, str | np.ndarray]"  # one input

LINE_BREAK: Final = re.compile("\r\n|\n|\r")
# What str.strip() strips, and the byte order mark.
EDGES: Final = "".join(
    map(chr, [*range(0x09, 0x0E), *range(0x1C, 0x21), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B)])
) + ("\u2028\u2029\u202f\u205f\u3000\ufeff")


def load(path: str | Path, *, kernels: str = "") -> Model:
    """Open a file ``model.dragoman``. ``kernels`` names an instruction set of the processor; "": the best."""
    return Model(Container.open(path), kernels=kernels)


@dataclass(frozen=True, slots=True)
class _Input:
    """One input as the library reads it."""

    given: Any
    arrays: Mapping[str, np.ndarray]
    prompt: str = ""  # of a language model
    is_empty: bool = False
    error: str | None = None


class Model:
    """What a model file can do. It never changes, and many threads may ask it at once.

    >>> model = dragoman_runtime.load("model.dragoman")
    >>> model.predict("some text").text
    >>> [each.text for each in model.predict(["some text", "some other text"], beam=5, n_best=3)[0].outputs]
    """

    def __init__(self, container: Container, *, kernels: str = "") -> None:
        self.name = container.name
        self._opened = OpenedModel(container.data, kernels=kernels)
        self.about = container.about()  # the run's name and version, its parts, and how the file compares with the run
        self.search, self.limits, self._bos, self._eos = read_settings(container)
        self.sources: tuple[SourceForm, ...] = self._opened.sources
        self.readers = {
            source.name: self._tokenizer(container, number, f"the tokeniser of {source.name}")
            for number, source in enumerate(self.sources)
            if source.kind == "tokens"
        }
        self.target = self._tokenizer(container, len(self.sources), "the tokeniser of the target")
        if self.target.size != self._opened.vocabulary:
            raise container.damaged("its target tokeniser has another vocabulary than its program")
        self.confidence = _read_confidence(container, self.about.get("confidence"))

    def __repr__(self) -> str:
        return f"Model({self.name}, reads {', '.join(source.name for source in self.sources) or 'prompts'})"

    @property
    def is_language_model(self) -> bool:
        """Tell whether the model has no source. Then its inputs are prompts."""
        return not self.sources

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the outputs of a classifier; empty: any output is possible."""
        return tuple(map(str, self.about.get("classes", ())))

    def predict(
        self,
        sources: Source | Iterable[Source],
        *,
        prefix: str | Sequence[str] | None = None,
        forbid: str | Sequence[str] = (),
        attention: bool = False,
        batch: int = 64,
        abstain: float | None = None,
        **settings: Any,
    ) -> Any:
        """Return the prediction for one input, or a list of predictions for several, in order.

        An input is a text; for several sources a mapping from their names; for sources that are no text
        an array of features or pixels in the run's form. ``prefix`` is what the outputs have to begin
        with, one text for all or one for each input; ``forbid`` are texts that no output may contain.
        All others are search settings: beam, n_best, normalize, max_length, sample, seed, temperature, …
        ``batch`` inputs are decoded together, which changes the speed and never the output. ``abstain``:
        leave out the outputs for inputs whose best output has a lower confidence than this.
        """
        if abstain is not None and not 0 <= abstain <= 1:
            raise UserError(f"abstain is the least confidence that an output needs, from 0 to 1; got {abstain!r}")
        if abstain is not None and self.confidence is None:
            raise UserError(f"{self.name}: has no confidence; fit it in the run (dragoman calibrate) and export again")
        is_single = isinstance(sources, (str, Mapping, np.ndarray))
        inputs = [self._read(source) for source in ([sources] if is_single else sources)]
        prefixes = [prefix] * len(inputs) if prefix is None or isinstance(prefix, str) else list(prefix)
        if len(prefixes) != len(inputs):
            raise UserError(f"a prefix is needed for each input: got {len(prefixes)} for {len(inputs)} inputs")
        if self.is_language_model:
            if prefix is not None:
                raise UserError("a language model's inputs are what its outputs begin with: put the prefix there")
            prefixes = [each.prompt for each in inputs]
        options = self._options(forbid, settings)
        found: dict[int, Prediction] = {}
        for row, each in enumerate(inputs):
            if each.error is not None or each.is_empty:
                found[row] = Prediction(each.given, (Output("", 0.0, (), (), True),), {}, each.error)
        # similar lengths side by side: a batch takes as long as its longest
        order = sorted(set(range(len(inputs))) - found.keys(), key=lambda row: _length(inputs[row].arrays))
        if self.classes and prefix is not None:  # no tokens are forced: the label is one that begins with the text
            for text in dict.fromkeys(prefixes):
                rows = [row for row in order if prefixes[row] == text]
                own = self._beginning_with(text or "", options)
                labelled = self._search(inputs, rows, [None] * len(inputs), own, attention, batch) if rows else {}
                note = self._confidence_note(own, bool(text))
                found |= {row: replace(each, confidence_note=note) for row, each in labelled.items()}
        else:
            found |= self._search(inputs, order, prefixes, options, attention, batch)
        predictions = [_withhold(found[row], abstain) for row in range(len(inputs))]
        return predictions[0] if is_single else predictions

    def _search(
        self,
        inputs: Sequence[_Input],
        rows: Sequence[int],
        prefixes: Sequence[str | None],
        options: SearchOptions,
        attention: bool,
        batch: int,
    ) -> dict[int, Prediction]:
        """Return the predictions of some inputs; one that is too long for the model has the reason as its error."""
        forced = [self.target.encode(prefixes[row] or "") for row in rows]
        own = [len(tokens) if self.is_language_model else 0 for tokens in forced]
        limits = [self.limits.limit(_length(inputs[row].arrays)) + more for row, more in zip(rows, own, strict=True)]
        try:
            results = self._opened.search(
                [inputs[row].arrays for row in rows],
                options,
                bos=self._bos,
                eos=self._eos,
                limits=limits,
                prefixes=forced if any(forced) else None,
                keys=rows,
                attention=attention,
                batch_size=batch,
            )
        except TooLong as error:
            if len(rows) == 1:
                return {rows[0]: Prediction(inputs[rows[0]].given, (Output("", 0.0, (), (), True),), {}, str(error))}
            halves = rows[: len(rows) // 2], rows[len(rows) // 2 :]
            first, second = (self._search(inputs, half, prefixes, options, attention, batch) for half in halves)
            return first | second
        found = {}
        for row, result in zip(rows, results, strict=True):
            outputs = tuple(self._output(hypothesis, prefixes[row]) for hypothesis in result.hypotheses)
            outputs = self._rate(outputs, options.sample)
            labels = {
                name: tuple(reader.pieces(inputs[row].arrays[name].tolist()))
                for name, reader in (self.readers.items() if attention else ())
            }
            note = self._confidence_note(options, bool(prefixes[row]))
            found[row] = Prediction(inputs[row].given, outputs, labels, confidence_note=note)
        return found

    def _rate(self, outputs: tuple[Output, ...], sampled: bool) -> tuple[Output, ...]:
        """Return the outputs with their confidence, if the file has numbers for it."""
        if self.confidence is None:
            return outputs
        rated = self.confidence.rate([(each.log_probs, each.finished) for each in outputs], sampled=sampled)
        return tuple(replace(each, confidence=own) for each, own in zip(outputs, rated, strict=True))

    def _confidence_note(self, options: SearchOptions, has_prefix: bool) -> str | None:
        if self.confidence is None:
            return None
        differences = self.confidence.differences(search_facts(asdict(options)))
        return describe_differences([*differences, *([GIVEN_PREFIX] if has_prefix else [])])

    def _output(self, hypothesis: NativeHypothesis, prompt: str | None) -> Output:
        tokens = hypothesis.tokens.tolist()
        text = self.target.decode(tokens)
        if prompt:  # as it was written, also where the model read <unk>
            text = prompt + text[len(self.target.decode(self.target.encode(prompt))) :]
        return Output(
            text,
            hypothesis.score,
            tuple(self.target.pieces(tokens)),
            tuple(hypothesis.log_probs.tolist()),
            hypothesis.finished,
            tuple(hypothesis.entropies.tolist()),
            hypothesis.attention,
        )

    def _read(self, source: Any) -> _Input:
        """Turn an input into arrays by source."""
        if self.is_language_model:
            if not isinstance(source, str):
                raise UserError(f"this model is a language model: give it texts, not {type(source).__name__}")
            return _Input(source, {}, tidy(source))
        names = [form.name for form in self.sources]
        given = dict(source) if isinstance(source, Mapping) else {names[0] if len(names) == 1 else "": source}
        given = {name: given[name] for name in names} if {*names} <= given.keys() else given
        if given.keys() != set(names):
            raise UserError(f"this model reads {', '.join(names)}; give a mapping by these names")
        arrays, texts = {}, []
        for name, value in given.items():
            reader = self.readers.get(name)
            if reader is None:
                arrays[name] = np.asarray(value, np.float32)
            elif isinstance(value, str):
                texts.append(tidy(value))
                if 0 < self.limits.characters < len(texts[-1]):
                    return _Input(source, {}, error=self._too_long(len(texts[-1])))
                arrays[name] = np.array([*reader.encode(texts[-1]), EOS], np.int32)
            else:
                raise UserError(f"{name}: give a text, not {type(value).__name__}")
        return _Input(source, arrays, is_empty=len(texts) == len(names) and not any(texts))

    def _too_long(self, count: int) -> str:
        return f"the input has {count:,} characters, and this model reads at most {self.limits.characters:,}; split it"

    def _options(self, forbid: str | Sequence[str], settings: Mapping[str, Any]) -> SearchOptions:
        texts = [forbid] if isinstance(forbid, str) else list(forbid)
        given = {name: value for name, value in settings.items() if value is not None}
        if texts and self.classes:
            left = [index for index, label in enumerate(self.classes) if not any(text in label for text in texts)]
            if not left:
                raise UserError("forbid: every class of this model contains what is forbidden; forbid less")
            given["only"] = tuple(self.search.only[index] for index in left)
        runs = {tuple(self.target.encode(tidy(text))) for text in texts if text.strip()}
        single = tuple(sorted(run[0] for run in runs if len(run) == 1))
        several = tuple(sorted(run for run in runs if len(run) > 1))
        given["forbidden"] = (*self.search.forbidden, *single)
        given["forbidden_runs"] = (*self.search.forbidden_runs, *several)
        return self.search.changed(given)

    def _beginning_with(self, prefix: str, options: SearchOptions) -> SearchOptions:
        """Return options of a classifier under which its outputs are labels that begin with ``prefix``."""
        labels = [index for index, label in enumerate(self.classes) if label.startswith(prefix)]
        if not labels:
            known = ", ".join(self.classes)
            raise UserError(
                f"prefix: no label of this model begins with {prefix!r}; give the beginning of one of its labels "
                f"({known if len(known) <= 200 else known[:199] + '…'})"
            )
        left = tuple(self.search.only[index] for index in labels if self.search.only[index] in options.only)
        if not left:
            raise UserError(f"prefix: every label that begins with {prefix!r} is forbidden; forbid less")
        return options.changed({"only": left})

    def _tokenizer(self, container: Container, number: int, name: str) -> NativeTokenizer:
        table = container.section("tokenizer", number)
        if table is None:
            raise container.damaged(f"it has no table for {name}")
        return NativeTokenizer(table, f"{container.name}: {name}")


def _read_confidence(container: Container, plain: Any) -> Confidence | None:
    if plain is None:
        return None
    try:
        return Confidence.from_json(plain)
    except ValueError as error:
        raise container.damaged(f"the numbers of its confidence are wrong: {error}") from None


def _withhold(prediction: Prediction, abstain: float | None) -> Prediction:
    """Return the prediction without its outputs if they are less sure than asked for."""
    confidence = prediction.confidence
    if abstain is None or confidence is None or confidence >= abstain:
        return prediction
    return replace(prediction, outputs=(Output("", 0.0, (), (), True, confidence=confidence),), abstained=True)


def tidy(text: str) -> str:
    """Return a text as training saw it: on one line, without white space around it."""
    return LINE_BREAK.sub(" ", text).strip(EDGES)


def _length(arrays: Mapping[str, np.ndarray]) -> int:
    return max((len(array) for array in arrays.values()), default=0)
