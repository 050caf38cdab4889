"""The record of a search, and the hypotheses that its back-pointers spell out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dragoman.search.options import SearchConfig
from dragoman.types import FINISHED, KEPT, Frontier, Hypothesis, Trace

ABSENT = -1  # fills the arrays of sources that have fewer candidates than others


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of one step for all sources of a batch; each row becomes a ``Frontier``.

    Those that are ABSENT come after the others of their source.
    """

    parent: np.ndarray  # (B, C) the row of the source that the candidate extends
    token: np.ndarray  # (B, C)
    log_prob: np.ndarray  # (B, C)
    total: np.ndarray  # (B, C) float64
    fate: np.ndarray  # (B, C) PRUNED, KEPT, FINISHED, or ABSENT


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of the search for one source.

    For a beam: the ``n_best`` hypotheses, all different, finished ones first and each kind best first. For sampling:
    the samples in the order they were drawn, repeats included, so that their frequencies mean something. There is no
    hypothesis only where a hard rule left none alive. The trace has no steps where it was not asked for.
    """

    hypotheses: tuple[Hypothesis, ...]
    trace: Trace

    @property
    def best(self) -> Hypothesis:
        return self.hypotheses[0]


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One step of the search for all sources that took part in it."""

    active: np.ndarray  # (B,) the sources, ascending
    origin: np.ndarray  # (B, k) by row: the candidate of the step before that it is
    live: np.ndarray  # (B,) how many of the rows are hypotheses
    candidates: Candidates  # (B, C)
    attention: np.ndarray | None  # (B, k, A, S)

    def pick(self, rows: np.ndarray) -> RecordedStep:
        """Return the step for some of the sources."""
        found = self.candidates
        arrays = (found.parent, found.token, found.log_prob, found.total, found.fate)
        candidates = Candidates(*(array[rows] for array in arrays))
        attention = None if self.attention is None else self.attention[rows]
        return RecordedStep(self.active[rows], self.origin[rows], self.live[rows], candidates, attention)


class Endings(NamedTuple):
    """The last candidates of hypotheses, M of them."""

    source: np.ndarray  # (M,)
    step: np.ndarray  # (M,)
    candidate: np.ndarray  # (M,)
    finished: np.ndarray  # (M,)
    total: np.ndarray  # (M,)


class SearchRecord:
    """The record of the search for a batch of sources while it runs: the arrays of each step, as they are."""

    def __init__(self, prefixes: Sequence[tuple[int, ...]]) -> None:
        self.prefixes = prefixes
        self.steps: list[RecordedStep] = []
        self._endings: list[Endings] = []

    def add(self, step: RecordedStep, alive: np.ndarray) -> None:
        """Add one step of the rows that are ``alive`` (B,); hypotheses that finish in it end there."""
        self.steps.append(step if alive.all() else step.pick(alive))
        step = self.steps[-1]
        self._end(np.nonzero(step.candidates.fate == FINISHED), finished=True)

    def cut(self, rows: np.ndarray) -> None:
        """End all live hypotheses of these rows of the last step unfinished: the length limit is reached."""
        kept = self.steps[-1].candidates.fate == KEPT
        kept[~rows] = False
        self._end(np.nonzero(kept), finished=False)

    def _end(self, places: tuple[np.ndarray, ...], finished: bool) -> None:
        row, candidate = places
        if len(row):
            last = self.steps[-1]
            count = len(row)
            self._endings.append(
                Endings(
                    last.active[row],
                    np.full(count, len(self.steps) - 1),
                    candidate,
                    np.full(count, finished),
                    last.candidates.total[row, candidate],
                )
            )

    def force(self, tokens: np.ndarray, log_probs: np.ndarray, attention: np.ndarray | None, last: int = KEPT) -> None:
        """Add the steps of forced tokens (B, P), with a single candidate each; the ``last`` has this fate.

        ``attention`` is (B, P, A, S).
        """
        rows, length = tokens.shape
        totals = np.cumsum(log_probs, axis=1, dtype=np.float64)
        zero, everyone = np.zeros((rows, 1), np.int64), np.ones(rows, bool)
        for index in range(length):
            here = slice(index, index + 1)
            fate = np.full((rows, 1), last if index == length - 1 else KEPT, np.int8)
            candidates = Candidates(zero, tokens[:, here], log_probs[:, here], totals[:, here], fate)
            looked = None if attention is None else attention[:, here]
            self.add(RecordedStep(np.arange(rows), zero, np.ones(rows, np.int64), candidates, looked), everyone)

    def results(self, config: SearchConfig, trace: bool) -> list[Result]:
        """Return for each source the hypotheses that the config asks for, and the trace they come from."""
        if not self._endings:
            return [Result((), self.trace(source, trace)) for source in range(len(self.prefixes))]
        endings = Endings(*(np.concatenate(parts) for parts in zip(*self._endings, strict=True)))
        penalties = np.array([config.penalty(length) for length in range(1, len(self.steps) + 1)])
        scores = endings.total / penalties[endings.step]
        order = np.lexsort((-scores, ~endings.finished, endings.source))
        if not config.sample:  # the first of each source, in the order of their ranks
            sources = endings.source[order]
            rank = np.arange(len(order)) - np.searchsorted(sources, sources)
            order = order[rank < config.n_best]
        chosen: list[list[Hypothesis]] = [[] for _ in self.prefixes]
        for source, hypothesis in self._trace_back(endings, scores, order):
            chosen[source].append(hypothesis)
        if config.sample:
            # Rows keep their order from step to step and each draw is a candidate of its own, so the order of the
            # paths is the order of the draws.
            chosen = [sorted(drawn, key=lambda output: output.path) for drawn in chosen]
        return [Result(tuple(found), self.trace(source, trace)) for source, found in enumerate(chosen)]

    def _trace_back(self, endings: Endings, scores: np.ndarray, order: np.ndarray) -> list[tuple[int, Hypothesis]]:
        """Return the hypotheses of some endings, by following the back-pointers of all of them together."""
        source, last, candidate = endings.source[order], endings.step[order], endings.candidate[order]
        shape = len(order), len(self.steps)
        tokens, path, parents, rows = (np.zeros(shape, np.int64) for _ in range(4))
        log_probs = np.zeros(shape)
        for index in range(len(self.steps) - 1, -1, -1):
            step = self.steps[index]
            here = np.flatnonzero(last >= index)
            row, own = np.searchsorted(step.active, source[here]), candidate[here]
            parent = step.candidates.parent[row, own]
            tokens[here, index] = step.candidates.token[row, own]
            log_probs[here, index] = step.candidates.log_prob[row, own]
            path[here, index], parents[here, index], rows[here, index] = own, parent, row
            candidate[here] = step.origin[row, parent]
        columns = zip(tokens.tolist(), log_probs.tolist(), path.tolist(), strict=True)
        found = []
        for number, (own_tokens, own_log_probs, own_path) in enumerate(columns):
            end = int(last[number]) + 1
            looked = [
                step.attention[rows[number, index], parents[number, index]]
                for index, step in enumerate(self.steps[:end])
                if step.attention is not None
            ]
            hypothesis = Hypothesis(
                tokens=tuple(own_tokens[:end]),
                log_probs=tuple(own_log_probs[:end]),
                score=float(scores[order[number]]),
                finished=bool(endings.finished[order[number]]),
                path=tuple(own_path[:end]),
                attention=np.stack(looked) if looked else None,
            )
            found.append((int(source[number]), hypothesis))
        return found

    def trace(self, source: int, wanted: bool) -> Trace:
        """Return the trace of one source; if it is not wanted, without steps."""
        return Trace(self._frontiers(source) if wanted else (), self.prefixes[source])

    def _frontiers(self, source: int) -> tuple[Frontier, ...]:
        """Return the steps of one source, as copies, so that a result does not keep its whole batch in memory."""
        frontiers = []
        for step in self.steps:
            row = int(np.searchsorted(step.active, source))
            if row == len(step.active) or step.active[row] != source:
                break
            found = step.candidates
            which = found.fate[row] != ABSENT
            looked = None if step.attention is None else step.attention[row, : step.live[row]].copy()
            frontiers.append(
                Frontier(
                    parent=found.parent[row][which],
                    token=found.token[row][which],
                    log_prob=found.log_prob[row][which],
                    total=found.total[row][which],
                    fate=found.fate[row][which],
                    attention=looked,
                )
            )
        return tuple(frontiers)


def forced_result(
    tokens: tuple[int, ...],
    log_probs: np.ndarray,
    attention: np.ndarray | None,
    finished: bool,
    config: SearchConfig,
    trace: bool,
) -> Result:
    """Return given tokens as the result of a search without choice. ``attention`` is (T, A, S)."""
    if not tokens:
        return Result((), Trace((), tokens))
    record = SearchRecord([tokens])
    if trace:
        looked = None if attention is None else attention[None]
        record.force(np.array([tokens]), log_probs[None], looked, FINISHED if finished else KEPT)
    numbers = tuple(log_probs.tolist())
    score = float(np.cumsum(log_probs, dtype=np.float64)[-1]) / config.penalty(len(tokens))
    path = (0,) * len(tokens)
    hypothesis = Hypothesis(tokens, numbers, score, finished, path, attention)
    return Result((hypothesis,), record.trace(0, trace))
