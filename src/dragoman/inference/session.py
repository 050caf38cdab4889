"""The one door to a system: prepare inputs, search, score given outputs, look inside.

Whoever asks a model something (the command line, Python, evaluation, the studio) asks a session. A session never
changes, and many threads may ask one at once: each gets what it would get alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import torch

from dragoman.config import TooLong
from dragoman.data.examples import SOURCE, tidy
from dragoman.data.reading.memory import is_frame
from dragoman.data.vocabulary import BOS, EOS
from dragoman.errors import UserError
from dragoman.inference import scoring
from dragoman.inference.batches import answer_in_batches
from dragoman.inference.engine.contract import Engine, SelfAttention
from dragoman.inference.inputs import InputReader
from dragoman.inference.predictions import Prediction, Scored, empty_prediction, make_prediction
from dragoman.inference.requests import (
    OneInput,
    PreparedInput,
    as_inputs,
    as_strings,
    as_text,
    check_batch,
    is_single,
    texts_by_source,
)
from dragoman.search.options import SearchConfig
from dragoman.search.paths import rescore
from dragoman.search.run import search
from dragoman.search.trace import Result
from dragoman.tables import Rows
from dragoman.types import Axis

if TYPE_CHECKING:
    from dragoman.inference.system import System


class DeadlineExceeded(UserError):
    """A search did not end in the time that it was given."""


class SearchCancelled(UserError):
    """Whoever asked for a search does not want it any more."""


@dataclass(frozen=True, repr=False)
class Session:
    """A system, the engine that computes for it, and the search settings to ask with."""

    system: System
    config: SearchConfig

    def __repr__(self) -> str:
        how = f"sampling, {self.config.samples} outputs" if self.config.sample else f"beam {self.config.beam}"
        return f"Session({self.system!r}, {how})"

    @property
    def engine(self) -> Engine:
        return self.system.engine

    # ---- from strings to strings

    @overload
    def predict(self, sources: OneInput, **options: Any) -> Prediction: ...

    @overload
    def predict(self, sources: Iterable[OneInput], **options: Any) -> Rows[Prediction]: ...

    def predict(self, sources: OneInput | Iterable[OneInput], **options: Any) -> Prediction | Rows[Prediction]:
        """Return the prediction for one input, or a list of predictions for several, in order.

        The options are those of ``stream``. Of one input, what the model read of its files is kept.
        """
        if is_single(sources):
            return next(self.stream(sources, **{"keep_arrays": True} | options))
        return Rows(self.stream(sources, **options))

    def stream(
        self,
        sources: OneInput | Iterable[OneInput],
        *,
        batch: int = 64,
        attention: bool = True,
        trace: bool = True,
        maps: bool = False,
        prefix: str | Sequence[str] | None = None,
        first: int = 0,
        keep_arrays: bool = False,
    ) -> Iterator[Prediction]:
        """Yield one prediction per input, in order, as soon as the batches that they are in are done.

        Attention and the axes it belongs to, the trace, self-attention (``maps``) and what the model read of files
        (``keep_arrays``) are made only on request. ``prefix`` is what the outputs have to begin with: one text for all,
        or a list with a text for each input. ``first`` is the index of the first input if these are a part of many: it
        seeds sampling.
        """
        check_batch(batch)
        inputs = self.prepare_all(sources)
        if isinstance(prefix, str):
            prefix = [prefix] * len(inputs)
        if prefix is not None and len(prefix) != len(inputs):
            raise UserError(f"a forced prefix is needed for each input: got {len(prefix)} for {len(inputs)} inputs")
        if self.system.is_language_model:
            if prefix is not None:
                raise UserError("a language model's inputs are what its outputs begin with: put the prefix there")
            prefix = [prepared.texts.get(SOURCE, "") for prepared in inputs]

        def answer(readable: Mapping[int, PreparedInput]) -> dict[int, Prediction]:
            rows = list(readable)
            tokens = None if prefix is None else [self.system.target.encode(prefix[row]) for row in rows]
            keys = [first + row for row in rows]
            results = self.search_each([readable[row] for row in rows], tokens, keys=keys, attention=attention)
            predictions = {}
            for row, result in zip(rows, results, strict=True):
                prepared = readable[row]
                if isinstance(result, TooLong):
                    predictions[row] = empty_prediction(prepared.source, str(result))
                    continue
                prompt = None if prefix is None else prefix[row]
                prediction = self.describe(prepared, result, axes=attention, trace=trace, prompt=prompt)
                if maps:
                    prediction = self.add_self_attention(prediction, prepared, result)
                if keep_arrays:
                    prediction = replace(prediction, arrays=self.file_arrays(prepared))
                predictions[row] = prediction
            return predictions

        yield from answer_in_batches(inputs, batch, answer)

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
        """Return the log-probability of given targets, end symbol included: of one, or of a list of them.

        A language model scores texts and takes no targets. ``running``: the texts are the lines of one text, each
        conditioned on the lines before it. None: as in training.
        """
        check_batch(batch)
        inputs = self.prepare_all(sources)
        if self.system.is_language_model:
            if targets is not None:
                raise UserError("a language model scores texts, and takes no targets: system.score(texts)")
            running = self.system.recipe.data.running if running is None else running
            wanted = [prepared.texts[SOURCE] for prepared in inputs]
            scored = self._score_texts(inputs, wanted, batch, running)
        else:
            if targets is None:
                raise UserError(
                    "scoring needs targets: system.score(sources, targets); only a language model scores texts"
                )
            if is_single(sources) != isinstance(targets, str):
                raise UserError("scoring needs one source and one target, or a list of each")
            wanted = [as_text(target, "a target") for target in as_inputs(targets, "a target")]
            if len(inputs) != len(wanted):
                raise UserError(f"scoring needs one target per source: got {len(wanted)} for {len(inputs)}")
            gold = [[*self.system.target.encode(tidy(target)), EOS] for target in wanted]
            scored = scoring.score_pairs(self.engine, inputs, gold, batch)
        rows = Rows(
            self._describe_scored(prepared, target, *each)
            for prepared, target, each in zip(inputs, wanted, scored, strict=True)
        )
        return rows[0] if is_single(sources) else rows

    def _score_texts(
        self, inputs: Sequence[PreparedInput], texts: Sequence[str], batch: int, running: bool
    ) -> list[scoring.ScoredTokens]:
        gold = [[*self.system.target.encode(text), EOS] for text in texts]
        if running and gold:
            return scoring.score_running_text(self.engine, gold, batch)
        return scoring.score_pairs(self.engine, inputs, gold, batch)

    def _describe_scored(
        self, prepared: PreparedInput, target: str, tokens: Sequence[int], log_probs: tuple[float, ...]
    ) -> Scored:
        source = None if self.system.is_language_model else prepared.source
        pieces = tuple(self.system.target.pieces(tokens))
        return Scored(float(sum(log_probs)), pieces, log_probs, source, target)

    # ---- the parts of a prediction

    def prepare(self, source: Any) -> PreparedInput:
        """Turn an input into what the engine reads. Files are checked and read later, a batch at a time."""
        source = as_strings(source)
        texts = texts_by_source(source, self._names)
        if (problem := self._too_many_characters(texts)) is not None:
            return PreparedInput(source, texts, {}, problem)
        return PreparedInput(source, texts, self.engine.prepare(texts))

    def prepare_all(self, sources: Any) -> list[PreparedInput]:
        """Prepare one input, several, or the rows of a table: a frame of pandas or polars, or a data set."""
        if not is_frame(sources):
            return [self.prepare(source) for source in as_inputs(sources)]
        rows = InputReader(self.system).read_table(sources)
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

    def search(
        self,
        inputs: Sequence[PreparedInput],
        prefixes: Sequence[Sequence[int]] | None = None,
        *,
        keys: Sequence[int] | None = None,
        attention: bool = False,
        deadline: float | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> list[Result]:
        """Search for the outputs of a batch of inputs whose files have been read.

        ``prefixes`` are the tokens that each output has to begin with, ``keys`` the numbers that seed sampling.
        ``deadline`` is a time of ``time.monotonic``. When it has passed, ``DeadlineExceeded`` is raised; when
        ``cancelled`` returns True, ``SearchCancelled``. Both are looked at once per token.
        """
        limits = [
            self.length_limit(prepared, () if prefixes is None else prefixes[row])
            for row, prepared in enumerate(inputs)
        ]
        decoder = self.engine.search_decoder(self.config)
        with torch.inference_mode():
            memory = self.engine.encode([prepared.arrays for prepared in inputs])
            results = search(
                decoder,
                memory,
                len(inputs),
                self.config,
                bos=BOS,
                eos=EOS,
                limits=limits,
                prefix=prefixes,
                keys=keys,
                need_attention=attention and self.engine.has_attention,
                on_step=_interruption(deadline, cancelled),
            )
            if decoder is self.engine.decoder:
                return results
            return rescore(self.engine.decoder, memory, results, bos=BOS, eos=EOS, config=self.config)

    def search_each(
        self,
        inputs: Sequence[PreparedInput],
        prefixes: Sequence[Sequence[int]] | None = None,
        *,
        keys: Sequence[int],
        **options: Any,
    ) -> list[Result | TooLong]:
        """Search as ``search`` does; an input that is too long for the model or the memory has the error as result."""
        try:
            return list(self.search(inputs, prefixes, keys=keys, **options))
        except (TooLong, MemoryError, RuntimeError) as error:
            if not isinstance(error, TooLong) and not is_out_of_memory(error):
                raise
            if len(inputs) == 1:
                sentence = (
                    f"there is not enough memory for an input of {inputs[0].length:,} positions; shorten or split it"
                )
                return [error if isinstance(error, TooLong) else TooLong(sentence)]
        return [
            result
            for row, prepared in enumerate(inputs)
            for result in self.search_each(
                [prepared], None if prefixes is None else [prefixes[row]], keys=[keys[row]], **options
            )
        ]

    def describe(
        self,
        prepared: PreparedInput,
        result: Result,
        *,
        axes: bool = True,
        trace: bool = True,
        prompt: str | None = None,
    ) -> Prediction:
        """Turn a search result into a prediction. ``axes``: with the labels of the positions that attention is over."""
        labelled = self.axes(prepared) if axes else {}
        made = make_prediction(prepared.source, labelled, result, self.system.target, trace=trace, prompt=prompt)
        return replace(made, strides=self.system.strides, reads_source=self.system.model.decoder.reads_source)

    # ---- given outputs, and the inside

    def force(
        self, prepared: PreparedInput, sequences: Sequence[Sequence[int]], *, alternatives: int = 0,
        attention: bool = False,
    ) -> list[scoring.ForcedPath]:  # fmt: skip
        """Return each output as the model sees it when its tokens are given, with the likeliest alternatives."""
        return scoring.force_paths(
            self.engine,
            prepared.arrays,
            sequences,
            vocabulary=self.system.target.size,
            alternatives=alternatives,
            attention=attention,
        )

    def rank_scores(self, prepared: PreparedInput, path: scoring.ForcedPath) -> np.ndarray:
        """Return what the search counts for each token, (T,): the model's own numbers, or a mix with CTC's."""
        decoder = self.engine.search_decoder(self.config)
        if decoder is self.engine.decoder:
            return path.log_probs
        memory = self.engine.encode([prepared.arrays])
        return scoring.score_with(decoder, memory, path.tokens, self.engine.device)

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


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error of Python or torch says that memory could not be had, on whatever device."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in str(error)


def _interruption(deadline: float | None, cancelled: Callable[[], bool] | None) -> Callable[[], None] | None:
    if deadline is None and cancelled is None:
        return None

    def check() -> None:
        if deadline is not None and time.monotonic() > deadline:
            raise DeadlineExceeded("the search did not end in the time it was given; give it more, or a shorter input")
        if cancelled is not None and cancelled():
            raise SearchCancelled("the search was cancelled")

    return check
