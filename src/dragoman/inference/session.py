"""The one door to a system: prepare inputs, search, score given outputs, look inside.

Whoever asks a model something (the command line, Python, evaluation, the studio) asks a session. A session never
changes, and many threads may ask one at once: each gets what it would get alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np

from dragoman.config import TooLong
from dragoman.data.examples import SOURCE, tidy
from dragoman.data.reading.columns import ColumnName
from dragoman.data.vocabulary import EOS, UNK
from dragoman.errors import OtherSearch, UserError
from dragoman.inference.alignment.aligner import InputAligner, can_align, refuse_unaligned
from dragoman.inference.alignment.units import check_unit
from dragoman.inference.arrivals import Answer, Arrivals, Receive
from dragoman.inference.batches import answer_in_batches
from dragoman.inference.predictions import (
    Prediction,
    Scored,
    empty_prediction,
    known_prediction,
    output_text,
    withhold_unsure,
)
from dragoman.inference.requests import (
    OneInput,
    PreparedInput,
    as_inputs,
    as_text,
    check_abstain,
    check_batch,
    is_single,
)
from dragoman.inference.steps import SearchCancelled, Steps
from dragoman.inference.workers import choose_run
from dragoman.runs.confidence import missing_confidence
from dragoman.search.trace import Result
from dragoman.tables import Rows

if TYPE_CHECKING:
    from dragoman.inference.scoring import ScoredTokens

OnToken: TypeAlias = Callable[[int, str, str], None]  # the index of an input, a token, the text so far


@dataclass(frozen=True, repr=False)
class Session(Steps):
    """From inputs to predictions and scores: a system with search settings of its own.

    >>> session = system.session(beam=10)
    >>> session
    Session(System(...), beam 10)
    >>> session.predict("abc").text == system.predict("abc", beam=10).text
    True
    """

    def __repr__(self) -> str:
        how = f"sampling, {self.config.samples} outputs" if self.config.sample else f"beam {self.config.beam}"
        return f"Session({self.system!r}, {how})"

    @overload
    def predict(self, sources: OneInput, **options: Any) -> Prediction: ...

    @overload
    def predict(self, sources: Iterable[OneInput], **options: Any) -> Rows[Prediction]: ...

    def predict(self, sources: OneInput | Iterable[OneInput], **options: Any) -> Prediction | Rows[Prediction]:
        """Return the prediction for one input, or a list of predictions for several, in order.

        The options are those of ``stream``. Of one input, what the model read of its files is kept, and its outputs
        are aligned if that is possible.
        """
        if is_single(sources):
            aligns = bool(options.get("attention", True)) and can_align(self)
            return next(self.stream(sources, **{"keep_arrays": True, "alignments": aligns} | options))
        return Rows(self.stream(sources, **options))

    def stream(
        self,
        sources: OneInput | Iterable[OneInput],
        *,
        batch: int = 64,
        attention: bool = True,
        trace: bool = True,
        maps: bool = False,
        alignments: bool = False,
        align_unit: str = "auto",
        prefix: str | Sequence[str] | None = None,
        source: ColumnName | Sequence[ColumnName] | None = None,
        first: int = 0,
        step: int = 1,
        keep_arrays: bool = False,
        probabilities: bool = True,
        cancelled: Callable[[], bool] | None = None,
        workers: int | None = 1,
        abstain: float | None = None,
        keys: Sequence[int] | None = None,
        alternatives: int = 0,
        on_token: OnToken | None = None,
    ) -> Iterator[Prediction]:
        """Yield one prediction per input, in order, as soon as the batches that they are in are done.

        Attention and the axes it belongs to, the trace, self-attention (``maps``) and what the model read of files
        (``keep_arrays``) are made only on request. ``alignments``: where each unit of an output comes from, as links to
        a text, times in a recording or boxes in a picture; ``align_unit``: auto, words, or tokens (characters or
        symbols, where tokens are these). ``prefix`` is what the outputs have to begin with: one text for all, or a list
        with a text for each input. A classifier's outputs are then labels that begin with it. ``source`` names the
        columns of a table to read, one for each source of the run. ``first`` is the index of the first input if these
        are a part of many, and ``step`` the difference between their indices: these seed sampling. ``probabilities``:
        if the run is a classifier, those of all its classes. When ``cancelled`` returns True, ``SearchCancelled`` is
        raised. ``workers``: processes that answer; None: as many as there are cores, as far as there is work for them.
        ``abstain``: leave out the outputs for inputs whose best output has a lower confidence than this, from 0 to 1.
        ``keys``: numbers that seed sampling, one for each input, in place of ``first`` and ``step``. ``alternatives``:
        so many of the likeliest tokens at each place of an output. ``on_token`` is called after each token of greedy
        search or of a single sample with the index of the input, the token, and the text so far.
        """
        check_batch(batch)
        check_unit(align_unit)
        if alignments:
            refuse_unaligned(self)
            attention = True
        check_abstain(abstain)
        if abstain is not None:
            self._expect_confidence(bool(prefix))
        inputs = self.prepare_all(sources, source)
        if isinstance(prefix, str):
            prefix = [prefix] * len(inputs)
        if prefix is not None and len(prefix) != len(inputs):
            raise UserError(f"a forced prefix is needed for each input: got {len(prefix)} for {len(inputs)} inputs")
        if self.system.is_language_model:
            if prefix is not None:
                raise UserError("a language model's inputs are what its outputs begin with: put the prefix there")
            prefix = [prepared.texts.get(SOURCE, "") for prepared in inputs]
        for text in {*(prefix or ())} if self.system.classes else ():
            self.beginning_with(text)  # refuses what begins no label

        if keys is not None and len(keys) != len(inputs):
            raise UserError(f"a sampling key is needed for each input: got {len(keys)} for {len(inputs)} inputs")
        seeds = [first + step * row for row in range(len(inputs))] if keys is None else keys

        def answer(readable: Mapping[int, PreparedInput]) -> dict[int, Prediction]:
            predictions = self._settle(readable, cancelled)
            rows = [row for row in readable if row not in predictions]
            results: dict[int, Result | TooLong] = {}
            for session, together, tokens in self._by_prefix(rows, prefix):

                def report(place: int, written: tuple[int, ...], together: Sequence[int] = together) -> None:
                    row, target = together[place], self.system.target
                    assert on_token is not None
                    forced = None if prefix is None or self.system.classes else prefix[row]
                    on_token(row, target.pieces(written[-1:])[0], output_text(written, target, forced))

                found = session.search_each(
                    [readable[row] for row in together], tokens, keys=[seeds[row] for row in together],
                    attention=attention, trace=trace, cancelled=cancelled,
                    on_token=None if on_token is None else report,
                )  # fmt: skip
                results |= zip(together, found, strict=True)
            for row in rows:
                prepared = readable[row]
                result = self._obeying(prepared, results[row])
                if isinstance(result, str):
                    predictions[row] = empty_prediction(prepared.source, result)
                    continue
                predictions[row] = self._describe_result(
                    prepared, result, None if prefix is None else prefix[row], attention=attention, trace=trace,
                    maps=maps, alignments=alignments, align_unit=align_unit, keep_arrays=keep_arrays,
                    alternatives=alternatives,
                )  # fmt: skip
            if probabilities and self.system.classes and rows:
                predictions |= self._with_probabilities(readable, predictions)
            return predictions

        if cancelled is not None or on_token is not None:  # which only this process can ask
            workers = 1
        run = choose_run(workers, len(inputs), batch, self.engine.place)
        for prediction in answer_in_batches(inputs, batch, answer, run):
            yield withhold_unsure(prediction, abstain)

    def _describe_result(
        self,
        prepared: PreparedInput,
        result: Result,
        prefix: str | None,
        *,
        attention: bool,
        trace: bool,
        maps: bool,
        alignments: bool,
        align_unit: str,
        keep_arrays: bool,
        alternatives: int,
    ) -> Prediction:
        """Return the prediction of one input with all that ``stream`` was asked for."""
        prompt = None if self.system.classes else prefix
        prediction = self.describe(
            prepared, result, axes=attention, trace=trace, prompt=prompt, has_prefix=bool(prefix)
        )
        if alignments:
            aligner = InputAligner(self, prepared, prediction.axes, align_unit)
            prediction = aligner.align(prediction, result.hypotheses)
        if maps:
            prediction = self.add_self_attention(prediction, prepared, result)
        if alternatives:
            prediction = self.add_alternatives(prediction, prepared, result, alternatives)
        if keep_arrays:
            prediction = replace(prediction, arrays=self.file_arrays(prepared))
        return prediction

    def takes_arrivals(self, *, prefix: str | None = None) -> bool:
        """Tell whether ``answer_arrivals`` can answer with these settings."""
        is_chosen = bool(self.system.classes) and prefix is not None  # each prefix leaves other labels
        return self.constraints is None and not is_chosen and self.engine.can_run_on(self.config)

    def answer_arrivals(
        self,
        receive: Receive,
        *,
        batch: int = 64,
        attention: bool = False,
        alignments: bool = False,
        align_unit: str = "auto",
        prefix: str | None = None,
    ) -> Iterator[Answer]:
        """Yield the answers of inputs that arrive while others are computed, with their indices, as each is done.

        ``receive`` is called before each token, and says which inputs have arrived and which nobody wants any more.
        The end is reached when all are answered and it says nothing new. An answer is what ``stream`` yields for the
        input alone, without trace, or the error that it raises. ``takes_arrivals`` tells whether this is possible.
        """
        check_batch(batch)
        check_unit(align_unit)
        if alignments:
            refuse_unaligned(self)
        if not self.takes_arrivals(prefix=prefix):
            raise UserError("inputs that arrive later cannot be answered with these settings; ask for batches")
        options = {"attention": attention or alignments, "alignments": alignments, "align_unit": align_unit}
        yield from Arrivals(self, prefix, batch, options).answer(receive)

    def complete(
        self, prepared: PreparedInput, result: Result, prefix: str | None, **options: Any
    ) -> Prediction | UserError:
        """Return the answer of an input that has been searched alone or beside others, as ``stream`` does."""
        obeying = self._obeying(prepared, result)
        if isinstance(obeying, str):
            return empty_prediction(prepared.source, obeying)
        without = {"trace": False, "maps": False, "keep_arrays": False, "alternatives": 0}
        try:
            prediction = self._describe_result(prepared, obeying, prefix, **without | options)
            if self.system.classes:
                prediction = self._with_probabilities({0: prepared}, {0: prediction})[0]
        except UserError as error:
            return error
        return prediction

    def _expect_confidence(self, has_prefix: bool) -> None:
        """Raise an error if the outputs will have no confidence, and warn if it was fitted for another search."""
        system = self.system
        if system.confidence is None:
            raise missing_confidence(system.folder, system.made_of, system.is_language_model)
        if (note := self.confidence_note(has_prefix)) is not None:
            warnings.warn(f"{note}; dragoman calibrate fits it for other settings", OtherSearch, stacklevel=3)

    def _by_prefix(
        self, rows: Sequence[int], prefix: Sequence[str] | None
    ) -> list[tuple[Session, list[int], list[list[int]] | None]]:
        """Return which rows are searched together, by which session, and the tokens that their outputs begin with.

        A classifier does not force tokens: it chooses among the labels whose text begins with the prefix.
        """
        if not rows:
            return []
        if prefix is None:
            return [(self, list(rows), None)]
        if not self.system.classes:
            return [(self, list(rows), [self.system.target.encode(prefix[row]) for row in rows])]
        together: dict[str, list[int]] = {}
        for row in rows:
            together.setdefault(prefix[row], []).append(row)
        return [(self.beginning_with(text), own, None) for text, own in together.items()]

    def _settle(
        self, inputs: Mapping[int, PreparedInput], cancelled: Callable[[], bool] | None
    ) -> dict[int, Prediction]:
        """Return the predictions that need no search: known answers, and inputs whose constraints cannot be met."""
        settled: dict[int, Prediction] = {}
        for row, prepared in inputs.items() if self.constraints is not None else ():
            assert self.constraints is not None
            if cancelled is not None and cancelled():  # looking for what is kept takes up to a second for an input
                raise SearchCancelled("the search was cancelled")
            answer = self.constraints.known_answer(prepared)
            if answer is not None:
                settled[row] = known_prediction(prepared.source, answer)
                continue
            try:
                self.constraints.phrases(prepared)
            except UserError as error:
                settled[row] = empty_prediction(prepared.source, str(error))
        return settled

    def _obeying(self, prepared: PreparedInput, result: Result | TooLong) -> Result | str:
        """Return a result that obeys the constraints, or say why there is none."""
        if isinstance(result, TooLong):
            return str(result)
        was_cut = any(not each.finished for each in result.hypotheses)
        if self.constraints is not None:
            result = self.constraints.obeyed(prepared, result)
        if result.hypotheses:
            return result
        if self.constraints is not None and self.constraints.has_rules:
            limit = self.length_limit(prepared)
            most = min(limit, self.config.max_length or limit)
            return self.constraints.unmet(prepared, most, was_cut=was_cut, can_rise=most < limit)
        return "no output obeys all rules of the search; ask with fewer"

    def _with_probabilities(
        self, inputs: Mapping[int, PreparedInput], predictions: Mapping[int, Prediction]
    ) -> dict[int, Prediction]:
        rows = [row for row, prediction in predictions.items() if prediction.error is None and not prediction.known]
        found = self.class_probabilities([inputs[row] for row in rows])
        return {
            row: replace(predictions[row], probabilities=each.shown, raw_probabilities=each.own)
            for row, each in zip(rows, found, strict=True)
        }

    @overload
    def score(  # type: ignore[overload-overlap]
        self,
        sources: OneInput,
        targets: str | None = None,
        *,
        batch: int = 64,
        running: bool | None = None,
        on_batch: Callable[[], object] | None = None,
    ) -> Scored: ...

    @overload
    def score(
        self,
        sources: Iterable[OneInput],
        targets: Iterable[str] | None = None,
        *,
        batch: int = 64,
        running: bool | None = None,
        on_batch: Callable[[], object] | None = None,
    ) -> Rows[Scored]: ...

    def score(
        self,
        sources: OneInput | Iterable[OneInput],
        targets: Iterable[str] | None = None,
        *,
        batch: int = 64,
        running: bool | None = None,
        on_batch: Callable[[], object] | None = None,
    ) -> Scored | Rows[Scored]:
        """Return the log-probability of given targets, end symbol included: of one, or of a list of them.

        A language model scores texts and takes no targets. ``running``: the texts are the lines of one text, each
        conditioned on the lines before it. None: as in training. ``on_batch`` is called before each batch, and may
        end the scoring by raising.
        """
        check_batch(batch)
        inputs = self.prepare_all(sources)
        if self.system.is_language_model:
            if targets is not None:
                raise UserError("a language model scores texts, and takes no targets: system.score(texts)")
            running = self.system.recipe.data.running if running is None else running
            wanted = [prepared.texts[SOURCE] for prepared in inputs]
            scored = self._score_texts(inputs, wanted, batch, running, on_batch)
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
            gold = [
                [*self.system.encode_target(tidy(target), prepared.texts), EOS]
                for target, prepared in zip(wanted, inputs, strict=True)
            ]
            scored = self._score_pairs(inputs, gold, batch, on_batch)
        rows = Rows(
            self._describe_scored(prepared, target, *each)
            for prepared, target, each in zip(inputs, wanted, scored, strict=True)
        )
        return rows[0] if is_single(sources) else rows

    def likeliest_tokens(
        self, sources: Iterable[OneInput], targets: Iterable[str], *, batch: int = 64
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the log-probability of the likeliest token at each place of given targets, and whether it is theirs.

        Both are (tokens of all targets,). The targets are in no particular order.
        """
        from dragoman.inference.scoring import find_likeliest

        inputs = self.prepare_all(list(sources))
        gold = [
            [*self.system.encode_target(tidy(target), prepared.texts), EOS]
            for prepared, target in zip(inputs, targets, strict=True)
        ]
        order = sorted(range(len(gold)), key=lambda row: len(gold[row]))
        found = []
        for begin in range(0, len(order), batch):
            rows = order[begin : begin + batch]
            arrays = [inputs[row].read().arrays for row in rows]
            found.append(find_likeliest(self.engine, arrays, [gold[row] for row in rows], self.system.target.size))
        return np.concatenate([best for best, _ in found]), np.concatenate([hit for _, hit in found])

    def _score_texts(
        self,
        inputs: Sequence[PreparedInput],
        texts: Sequence[str],
        batch: int,
        running: bool,
        on_batch: Callable[[], object] | None,
    ) -> list[ScoredTokens]:
        gold = [[*self.system.target.encode(text), EOS] for text in texts]
        if running and gold:
            from dragoman.inference.scoring import score_running_text

            return score_running_text(self.engine, gold, batch, on_batch)
        return self._score_pairs(inputs, gold, batch, on_batch)

    def _score_pairs(
        self,
        inputs: Sequence[PreparedInput],
        gold: Sequence[Sequence[int]],
        batch: int,
        on_batch: Callable[[], object] | None,
    ) -> list[ScoredTokens]:
        """Score each output given its own input. Outputs of similar length are scored together."""
        order = sorted(range(len(gold)), key=lambda row: len(gold[row]))
        scored: dict[int, ScoredTokens] = {}
        for begin in range(0, len(order), batch):
            if on_batch is not None:
                on_batch()
            rows = order[begin : begin + batch]
            found = self.engine.force([inputs[row].read().arrays for row in rows], [gold[row] for row in rows])
            scored |= {row: (tuple(gold[row]), log_probs) for row, log_probs in zip(rows, found, strict=True)}
        return [scored[row] for row in range(len(gold))]

    def _describe_scored(
        self, prepared: PreparedInput, target: str, tokens: Sequence[int], log_probs: tuple[float, ...]
    ) -> Scored:
        source = None if self.system.is_language_model else prepared.source
        pieces = tuple(self.system.target_for(prepared.texts).pieces(tokens))
        is_label = tidy(target) in self.system.classes if self.system.classes else None
        return Scored(float(sum(log_probs)), pieces, log_probs, source, target, list(tokens).count(UNK), is_label)
