"""The steps that a prediction consists of: prepare, search, describe; score given outputs; look inside."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from dragoman.config import TooLong
from dragoman.data.reading.columns import ColumnName
from dragoman.data.reading.memory import is_frame
from dragoman.data.vocabulary import EOS
from dragoman.errors import UserError
from dragoman.inference.engine.contract import Engine, SelfAttention
from dragoman.inference.inputs import InputReader
from dragoman.inference.predictions import Prediction, make_prediction
from dragoman.inference.requests import PreparedInput, as_inputs, as_strings, as_text, only_sources, texts_by_source
from dragoman.runtime.confidence import CONSTRAINED, GIVEN_PREFIX, describe_differences, search_facts
from dragoman.search.options import SearchConfig
from dragoman.search.trace import Result
from dragoman.tables import shorten
from dragoman.types import Axis

if TYPE_CHECKING:
    from dragoman.inference.constraints import Constraints
    from dragoman.inference.scoring import ForcedPath
    from dragoman.inference.system import System


class DeadlineExceeded(UserError):
    """A search did not end in the time that it was given."""


class SearchCancelled(UserError):
    """Whoever asked for a search does not want it any more."""


class ClassShares(NamedTuple):
    """The probabilities of the classes of a classifier for one input, the likeliest first."""

    shown: dict[str, float]  # as people read them
    own: dict[str, float]  # the model's


@dataclass(frozen=True, repr=False)
class Steps:
    """A system, the engine that computes for it, and the search settings to ask with."""

    system: System
    config: SearchConfig
    constraints: Constraints | None = None  # what outputs have to obey

    @property
    def engine(self) -> Engine:
        return self.system.engine

    def prepare(self, source: Any) -> PreparedInput:
        """Turn an input into what the engine reads. Files are checked and read later, a batch at a time."""
        if isinstance(source, PreparedInput):
            return source
        source = as_strings(only_sources(source, self._names))
        texts = texts_by_source(source, self._names)
        if (problem := self._too_many_characters(texts)) is not None:
            return PreparedInput(source, texts, {}, problem)
        return PreparedInput(source, texts, self.engine.prepare(texts))

    def prepare_all(
        self, sources: Any, columns: ColumnName | Sequence[ColumnName] | None = None
    ) -> list[PreparedInput]:
        """Prepare one input, several, or the rows of a table: a frame of pandas or polars, or a data set.

        ``columns`` are those of the table to read, one for each source of the run; None: as in training.
        """
        if not is_frame(sources):
            if columns is not None:
                raise UserError(
                    "source names columns of a table: a DataFrame of pandas or polars, a pyarrow Table or a "
                    f"datasets.Dataset; got {type(sources).__name__}"
                )
            return [self.prepare(source) for source in as_inputs(sources)]
        named = [columns] if isinstance(columns, (str, int)) else list(columns or ())
        rows = InputReader(self.system, source=named, option="source").read_table(sources)
        return [
            self.prepare(row.raw)
            if row.problem is None
            else PreparedInput(row.raw, {}, {}, f"{row.place}: {row.problem}")
            for row in rows
        ]

    def _too_many_characters(self, texts: Mapping[str, str]) -> str | None:
        """Refuse a text that is longer than any row of the run's data could be."""
        data = self.system.recipe.data
        longest = max(map(len, texts.values()), default=0)
        if data.running or longest <= data.max_characters:
            return None
        return (
            f"the input has {longest:,} characters, and this run reads at most {data.max_characters:,} "
            "(data.max_characters in training); shorten or split it"
        )

    @cached_property
    def _names(self) -> tuple[str, ...] | None:
        return None if self.system.is_language_model else tuple(self.system.modalities)

    def length_limit(self, prepared: PreparedInput, prefix: Sequence[int] = ()) -> int:
        """Return how many tokens an output may have. A language model may write as many after any prompt."""
        limit = self.engine.length_limit(prepared.features)
        return limit + len(prefix) if self.system.is_language_model else limit

    def beginning_with(self, prefix: str) -> Self:
        """Return a session of a classifier that answers with the labels whose text begins with ``prefix`` alone."""
        classes = self.system.classes
        labels = [label for label in classes if label.startswith(as_text(prefix, "prefix"))]
        if not labels:
            known = shorten(", ".join(classes), 200)
            raise UserError(
                f"prefix: no label of this run begins with {prefix!r}; give the beginning of one of its labels "
                f"({known})"
            )
        outputs = {tuple(self.system.target.encode(label)) for label in labels}
        only = tuple(output for output in self.config.only if output in outputs)
        if not only:
            raise UserError(f"prefix: every label that begins with {prefix!r} is forbidden; forbid less")
        return replace(self, config=self.config.model_copy(update={"only": only}))

    def search(
        self,
        inputs: Sequence[PreparedInput],
        prefixes: Sequence[Sequence[int]] | None = None,
        *,
        keys: Sequence[int] | None = None,
        attention: bool = False,
        trace: bool = True,
        deadline: float | None = None,
        cancelled: Callable[[], bool] | None = None,
        on_token: Callable[[int, tuple[int, ...]], None] | None = None,
    ) -> list[Result]:
        """Search for the outputs of a batch of inputs whose files have been read.

        ``prefixes`` are the tokens that each output has to begin with, ``keys`` the numbers that seed sampling.
        Without ``trace``, the results need not have any.
        ``deadline`` is a time of ``time.monotonic``. When it has passed, ``DeadlineExceeded`` is raised; when
        ``cancelled`` returns True, ``SearchCancelled``. Both are looked at once per token. ``on_token`` is called with
        the number of an input and its tokens so far; for greedy search, or a single sample.
        """
        limits = [
            self.length_limit(prepared, () if prefixes is None else prefixes[row])
            for row, prepared in enumerate(inputs)
        ]
        return self.engine.search(
            [prepared.arrays for prepared in inputs],
            self.config,
            limits=limits,
            prefixes=prefixes,
            keys=keys,
            attention=attention and self.engine.has_attention,
            trace=trace,
            on_step=_interruption(deadline, cancelled),
            on_token=on_token,
            further=None if self.constraints is None else self.constraints.make_rules(inputs),
        )

    def search_each(
        self,
        inputs: Sequence[PreparedInput],
        prefixes: Sequence[Sequence[int]] | None = None,
        *,
        keys: Sequence[int],
        on_token: Callable[[int, tuple[int, ...]], None] | None = None,
        **options: Any,
    ) -> list[Result | TooLong]:
        """Search as ``search`` does; an input that is too long for the model or the memory has the error as result."""
        try:
            return list(self.search(inputs, prefixes, keys=keys, on_token=on_token, **options))
        except (TooLong, MemoryError, RuntimeError) as error:
            if not isinstance(error, TooLong) and not is_out_of_memory(error):
                raise
            if len(inputs) == 1:
                sentence = (
                    f"there is not enough memory for an input of {inputs[0].length:,} positions; shorten or split it"
                )
                return [error if isinstance(error, TooLong) else TooLong(sentence)]
        results: list[Result | TooLong] = []
        for row, prepared in enumerate(inputs):
            own = None if on_token is None else partial(_report_as, on_token, row)
            prefix = None if prefixes is None else [prefixes[row]]
            results += self.search_each([prepared], prefix, keys=[keys[row]], on_token=own, **options)
        return results

    def describe(
        self,
        prepared: PreparedInput,
        result: Result,
        *,
        axes: bool = True,
        trace: bool = True,
        prompt: str | None = None,
        has_prefix: bool = False,
    ) -> Prediction:
        """Turn a search result into a prediction. ``axes``: with the labels of the positions that attention is over.

        ``prompt`` is a text that the output begins with; ``has_prefix``: it was asked to begin with some text.
        """
        labelled = self.axes(prepared) if axes else {}
        target = self.system.target_for(prepared.texts)
        made = make_prediction(prepared.source, labelled, result, target, trace=trace, prompt=prompt)
        made = replace(made, strides=self.system.strides, reads_source=self.system.outline.reads_source)
        return self._rate(made, has_prefix or bool(prompt))

    def _rate(self, prediction: Prediction, has_prefix: bool) -> Prediction:
        """Return the prediction with the confidence of each of its outputs, if the system has one."""
        confidence = self.system.confidence
        if confidence is None:
            return prediction
        given = [(output.log_probs, output.finished) for output in prediction.outputs]
        rated = confidence.rate(given, sampled=self.config.sample)
        outputs = tuple(replace(output, confidence=own) for output, own in zip(prediction.outputs, rated, strict=True))
        return replace(prediction, outputs=outputs, confidence_note=self.confidence_note(has_prefix))

    def confidence_note(self, has_prefix: bool = False) -> str | None:
        """Return why the confidence of outputs may be off; None: it was fitted with these very search settings."""
        if self.system.confidence is None:
            return None
        is_constrained = self.constraints is not None and self.constraints.has_rules
        others = [GIVEN_PREFIX] * has_prefix + [CONSTRAINED] * is_constrained
        return describe_differences([*self._search_differences, *others])

    @cached_property
    def _search_differences(self) -> list[str]:
        assert self.system.confidence is not None
        return self.system.confidence.differences(search_facts(self.config.model_dump()))

    # ---- given outputs, and the inside

    def force(
        self, prepared: PreparedInput, sequences: Sequence[Sequence[int]], *, alternatives: int = 0,
        attention: bool = False, permitted: Callable[[Sequence[int]], np.ndarray] | None = None,
        on_batch: Callable[[], object] | None = None,
    ) -> list[ForcedPath]:  # fmt: skip
        """Return each output as the model sees it when its tokens are given, with the likeliest alternatives.

        ``permitted`` returns which tokens may be written after a prefix, (V,); only they are counted in a rank or
        offered as alternatives. None: all tokens. ``on_batch`` is called before each batch of outputs, and may end the
        scoring by raising.
        """
        from dragoman.inference.scoring import force_paths

        return force_paths(
            self.engine,
            prepared.arrays,
            sequences,
            vocabulary=self.system.target.size,
            alternatives=alternatives,
            attention=attention,
            probabilities=self.system.token_probabilities,
            permitted=permitted,
            on_batch=on_batch,
        )

    def class_probabilities(self, inputs: Sequence[PreparedInput]) -> list[ClassShares]:
        """Return the probability of each class of the run for each input.

        They are the probabilities of the classes as outputs, divided by their sum: the model's own, and as people read
        them, without the label smoothing of training if that was fitted.
        """
        classes, target, confidence = self.system.classes, self.system.target, self.system.confidence
        if not inputs or not classes:
            return [ClassShares({}, {}) for _ in inputs]
        outputs = [[*target.encode(label), EOS] for label in classes]
        own = self.engine.score_outputs([each.arrays for each in inputs], outputs, target.size)  # (B, K, T)
        real = np.arange(own.shape[2]) < np.array([len(output) for output in outputs])[:, None]  # (K, T)
        shown = own if confidence is None else np.where(real, confidence.log_probs(own), 0.0)
        return [
            ClassShares(_shares(classes, row), _shares(classes, plain))
            for row, plain in zip(shown.sum(2), own.sum(2), strict=True)
        ]

    def rank_scores(self, prepared: PreparedInput, path: ForcedPath) -> np.ndarray:
        """Return what the search counts for each token, (T,): the model's own numbers, or a mix with CTC's."""
        decoder = self.engine.search_decoder(self.config)
        if decoder is self.engine.decoder:
            return path.log_probs
        from dragoman.inference.scoring import score_with

        memory = self.engine.encode([prepared.arrays])
        return score_with(decoder, memory, path.tokens, self.engine.device)

    def self_attention(self, prepared: PreparedInput, outputs: Sequence[Sequence[int]]) -> SelfAttention:
        """Return the self-attention of both sides for the tokens of some outputs."""
        return self.engine.self_attention(prepared.arrays, outputs)

    def add_self_attention(self, prediction: Prediction, prepared: PreparedInput, result: Result) -> Prediction:
        """Return the prediction with the self-attention of its input and of each of its outputs."""
        maps = self.self_attention(prepared, [hypothesis.tokens for hypothesis in result.hypotheses])
        outputs = tuple(
            replace(output, self_attention=own) for output, own in zip(prediction.outputs, maps.outputs, strict=True)
        )
        return replace(prediction, outputs=outputs, self_attention=maps.encoder)

    def add_alternatives(
        self, prediction: Prediction, prepared: PreparedInput, result: Result, count: int
    ) -> Prediction:
        """Return the prediction with the ``count`` likeliest tokens at each place of each of its outputs."""
        paths = self.force(prepared, [hypothesis.tokens for hypothesis in result.hypotheses], alternatives=count)
        outputs = []
        for output, path in zip(prediction.outputs, paths, strict=True):
            rows = zip(path.alternatives.tolist(), path.alternative_log_probs.tolist(), strict=True)
            places = tuple(
                tuple(zip(self.system.target.pieces(tokens), log_probs, strict=True)) for tokens, log_probs in rows
            )
            outputs.append(replace(output, alternatives=places))
        return replace(prediction, outputs=tuple(outputs))

    def represent(self, inputs: Sequence[PreparedInput]) -> tuple[np.ndarray, str]:
        """Return one vector per input, (B, D), and what the vectors are, in words."""
        return self.engine.represent([prepared.arrays for prepared in inputs])

    def axes(self, prepared: PreparedInput) -> dict[str, Axis]:
        """Return the labels of the positions that a decoder looks at, by source."""
        arrays, strides = self.engine.own_arrays(prepared.arrays), self.system.strides
        return {name: modality.axis(arrays[name], strides[name]) for name, modality in self.system.modalities.items()}

    def file_arrays(self, prepared: PreparedInput) -> dict[str, np.ndarray]:
        """Return the sources that are files as the model read them."""
        arrays = self.engine.own_arrays(prepared.arrays)
        return {name: arrays[name] for name, modality in self.system.modalities.items() if modality.is_file}


def _report_as(on_token: Callable[[int, tuple[int, ...]], None], row: int, _: int, tokens: tuple[int, ...]) -> None:
    """Report the tokens of the only input of a search as those of input ``row``."""
    on_token(row, tokens)


def _shares(classes: Sequence[str], scores: np.ndarray) -> dict[str, float]:
    """Return the probabilities of the classes, the likeliest first, from their log-probabilities, (K,)."""
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    return {classes[index]: float(shares[index]) for index in np.argsort(-shares, kind="stable")}


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error of Python or torch says that memory could not be had, on whatever device."""
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        return True
    torch = sys.modules.get("torch")  # an error of torch comes from a torch that is loaded
    return torch is not None and isinstance(error, torch.OutOfMemoryError)


def _interruption(deadline: float | None, cancelled: Callable[[], bool] | None) -> Callable[[], None] | None:
    if deadline is None and cancelled is None:
        return None

    def check() -> None:
        if deadline is not None and time.monotonic() > deadline:
            raise DeadlineExceeded("the search did not end in the time it was given; give it more, or a shorter input")
        if cancelled is not None and cancelled():
            raise SearchCancelled("the search was cancelled")

    return check
