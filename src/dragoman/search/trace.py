"""The record of a search, and the hypotheses that its back-pointers spell out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dragoman.search.options import SearchConfig
from dragoman.types import FINISHED, KEPT, Frontier, Hypothesis, Trace


@dataclass(frozen=True, slots=True)
class Result:
    """The outcome of the search for one source.

    For a beam: the ``n_best`` hypotheses, all different, finished ones first and each kind best first. For sampling:
    the samples in the order they were drawn, repeats included, so that their frequencies mean something.
    """

    hypotheses: tuple[Hypothesis, ...]
    trace: Trace

    @property
    def best(self) -> Hypothesis:
        return self.hypotheses[0]


class Ending(NamedTuple):
    """The last candidate of a hypothesis."""

    step: int
    candidate: int
    finished: bool


@dataclass(slots=True)
class SearchRecord:
    """The record of the search for one source while it runs."""

    prefix: tuple[int, ...] = ()
    steps: list[Frontier] = field(default_factory=list)
    endings: list[Ending] = field(default_factory=list)

    def add(self, frontier: Frontier) -> None:
        """Add one step; hypotheses that finish in it end there."""
        ended = np.flatnonzero(frontier.fate == FINISHED).tolist()
        self.endings += [Ending(len(self.steps), candidate, True) for candidate in ended]
        self.steps.append(frontier)

    def cut(self) -> None:
        """End all live hypotheses unfinished, because the length limit is reached."""
        last = len(self.steps) - 1
        self.endings += [Ending(last, candidate, False) for candidate in self.steps[last].kept.tolist()]

    def force(self, tokens: tuple[int, ...], log_probs: np.ndarray, attention: np.ndarray | None, fate: int) -> None:
        """Add steps with a single candidate each; the last has this ``fate``. ``attention`` is (T, A, S)."""
        self.prefix = tokens
        totals = np.cumsum(log_probs, dtype=np.float64)
        zero = np.zeros(1, np.int32)
        for index, token in enumerate(tokens):
            self.add(
                Frontier(
                    parent=zero,
                    token=np.array([token]),
                    log_prob=log_probs[index : index + 1],
                    total=totals[index : index + 1],
                    fate=np.array([fate if index == len(tokens) - 1 else KEPT], np.int8),
                    attention=None if attention is None else attention[index : index + 1],
                )
            )

    def result(self, config: SearchConfig) -> Result:
        """Return the hypotheses that the config asks for, and the trace they come from."""
        trace = Trace(tuple(self.steps), self.prefix)
        if config.sample:
            # Rows keep their order from step to step and each draw is a candidate of its own, so the order of the
            # paths is the order of the draws.
            drawn = sorted(
                (trace_back(trace, ending, config) for ending in self.endings), key=lambda output: output.path
            )
            return Result(tuple(drawn), trace)

        def rank(ending: Ending) -> tuple[bool, float]:
            total = float(trace.steps[ending.step].total[ending.candidate])
            return not ending.finished, -total / config.penalty(ending.step + 1)

        best = sorted(self.endings, key=rank)[: config.n_best]
        return Result(tuple(trace_back(trace, ending, config) for ending in best), trace)


def trace_back(trace: Trace, ending: Ending, config: SearchConfig) -> Hypothesis:
    """Return the hypothesis that ends here, by following the back-pointers to its first token."""
    path: list[int] = []
    tokens: list[int] = []
    log_probs: list[float] = []
    attention: list[np.ndarray] = []
    candidate = ending.candidate
    for step in range(ending.step, -1, -1):
        frontier = trace.steps[step]
        parent = int(frontier.parent[candidate])
        path.append(candidate)
        tokens.append(int(frontier.token[candidate]))
        log_probs.append(float(frontier.log_prob[candidate]))
        if frontier.attention is not None:
            attention.append(frontier.attention[parent])
        if step:
            candidate = int(trace.steps[step - 1].kept[parent])
    total = float(trace.steps[ending.step].total[ending.candidate])
    return Hypothesis(
        tokens=tuple(reversed(tokens)),
        log_probs=tuple(reversed(log_probs)),
        score=total / config.penalty(len(tokens)),
        finished=ending.finished,
        path=tuple(reversed(path)),
        attention=np.stack(attention[::-1]) if attention else None,
    )
