"""Race candidates against each other: all train, the better ones train on (successive halving).

A race has rungs (Jamieson and Talwalkar 2016). On each rung every candidate that is left trains up
to a number of updates that was fixed beforehand, and the best of them go on to the next. A race with
one rung trains all candidates to the end and ranks them.

A race is deterministic. It decides a rung when all its runs have a score, by the mean score of each
candidate; of equal ones the earlier in the list is better. So it does not matter in which order runs
finish. Every score and every decision is stored as it is made. A race that was killed goes on from
there and comes to the same result.

How runs are trained is none of its business: ``compete`` gets the tasks of a rung and reports what
became of them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from dragoman.errors import UserError
from dragoman.files import damaged_file, read_json, write_json


@dataclass(frozen=True, slots=True)
class Candidate:
    """What competes: a model with its runs, usually one for each seed."""

    name: str
    runs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rung:
    """How far the runs of a rung train, and how many candidates go on from it."""

    updates: int | None  # None: to the end of each run
    keep: int


@dataclass(frozen=True, slots=True)
class Task:
    """One run that is to be trained up to a rung."""

    run: str
    candidate: str
    rung: int  # from 0
    updates: int | None


@dataclass(frozen=True, slots=True)
class RunScored:
    """A run has reached its rung. A higher score is better."""

    run: str
    score: float


@dataclass(frozen=True, slots=True)
class RunFailed:
    """A run has not reached its rung."""

    run: str
    problem: str  # a sentence
    killed: bool = False  # from outside: the rung is not decided without it


@dataclass(frozen=True, slots=True)
class RungStarted:
    """The runs of a rung begin, or go on."""

    rung: int
    updates: int | None
    candidates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RungDecided:
    """All runs of a rung are done."""

    rung: int
    ranking: tuple[str, ...]  # the best first; without the failed ones
    kept: tuple[str, ...]
    failed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a candidate is in the race."""

    name: str
    rung: int  # the last that it took part in
    score: float | None  # the mean over its runs there; None if some have none
    failed: bool


@dataclass(frozen=True, slots=True)
class RaceEnded:
    """The race is over, or was interrupted."""

    finished: bool
    standings: tuple[Standing, ...]  # the best first


Outcome: TypeAlias = RunScored | RunFailed
RaceEvent: TypeAlias = RunScored | RunFailed | RungStarted | RungDecided | RaceEnded
Other = TypeVar("Other")  # events of ``compete`` that the race only passes on


@dataclass(frozen=True, slots=True)
class RaceState:
    """What has happened in a race so far, and its rules."""

    candidates: tuple[Candidate, ...]
    rungs: tuple[Rung, ...]
    scores: tuple[Mapping[str, float], ...] = ()  # for each rung, by run
    decisions: tuple[RungDecided, ...] = ()

    def entrants(self, rung: int) -> list[Candidate]:
        """Return the candidates of a rung, in the order of the list."""
        if rung == 0:
            return list(self.candidates)
        kept = self.decisions[rung - 1].kept
        return [candidate for candidate in self.candidates if candidate.name in kept]

    def scores_of(self, rung: int) -> Mapping[str, float]:
        """Return the scores of a rung so far, by run."""
        return self.scores[rung] if rung < len(self.scores) else {}

    def mean(self, candidate: Candidate, rung: int) -> float | None:
        """Return the mean score of a candidate on a rung; None while a run has none."""
        scores = self.scores_of(rung)
        if not all(run in scores for run in candidate.runs):
            return None
        return statistics.fmean(scores[run] for run in candidate.runs)

    def with_score(self, rung: int, run: str, score: float) -> RaceState:
        """Return the state after a run has reached a rung."""
        scores = [*self.scores, *({} for _ in range(rung + 1 - len(self.scores)))]
        scores[rung] = {**scores[rung], run: score}
        return replace(self, scores=tuple(scores))

    def decide(self, rung: int) -> RungDecided:
        """Rank the candidates of a rung and say which go on; one without all its scores has failed."""
        entrants = self.entrants(rung)
        means = {candidate.name: self.mean(candidate, rung) for candidate in entrants}
        ranking = rank({name: mean for name, mean in means.items() if mean is not None})
        failed = tuple(name for name, mean in means.items() if mean is None)
        return RungDecided(rung, ranking, ranking[: self.rungs[rung].keep], failed)

    def standings(self) -> tuple[Standing, ...]:
        """Return all candidates, the best first: by the last rung, then by the score there."""
        standings = []
        for candidate in self.candidates:
            rung = 0
            while rung < len(self.decisions) and rung + 1 < len(self.rungs):
                if candidate.name not in self.decisions[rung].kept:
                    break
                rung += 1
            failed = rung < len(self.decisions) and candidate.name in self.decisions[rung].failed
            standings.append(Standing(candidate.name, rung, self.mean(candidate, rung), failed))
        return tuple(sorted(standings, key=lambda each: (-each.rung, each.score is None, -(each.score or 0.0))))

    def to_json(self) -> dict[str, Any]:
        """Return the state as plain values, ready for ``json.dumps``."""
        return {
            "candidates": {candidate.name: list(candidate.runs) for candidate in self.candidates},
            "rungs": [{"updates": rung.updates, "keep": rung.keep} for rung in self.rungs],
            "scores": [dict(scores) for scores in self.scores],
            "decisions": [
                {"ranking": list(each.ranking), "kept": list(each.kept), "failed": list(each.failed)}
                for each in self.decisions
            ],
        }

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> RaceState:
        """Return the state that ``to_json`` made these values of."""
        return cls(
            tuple(Candidate(name, tuple(runs)) for name, runs in plain["candidates"].items()),
            tuple(Rung(rung["updates"], rung["keep"]) for rung in plain["rungs"]),
            tuple({run: float(score) for run, score in scores.items()} for scores in plain["scores"]),
            tuple(
                RungDecided(number, tuple(each["ranking"]), tuple(each["kept"]), tuple(each["failed"]))
                for number, each in enumerate(plain["decisions"])
            ),
        )


def make_rungs(candidates: int, last: int | None, first: int | None = None, factor: int = 2) -> tuple[Rung, ...]:
    """Return the rungs from ``first`` updates to ``last``, each ``factor`` times as far as the one before.

    The best 1 / ``factor`` of the candidates go on, at least one. Without ``first`` there is one
    rung.
    """
    if factor < 2:
        raise UserError(f"factor = {factor}: from rung to rung, runs train at least 2 times as long")
    if first is None:
        return (Rung(last, 1),)
    if last is None or not 0 < first < last:
        raise UserError(f"the first rung ({first} updates) must be before the end of the runs ({last} updates)")
    updates, left = first, candidates
    rungs = []
    while updates < last and left > 1:
        left = -(-left // factor)
        rungs.append(Rung(updates, left))
        updates *= factor
    return (*rungs, Rung(last, 1))


def rank(means: Mapping[str, float]) -> tuple[str, ...]:
    """Return the names from the highest mean to the lowest; of equal ones the earlier comes first."""
    return tuple(sorted(means, key=lambda name: -means[name]))


def open_race(path: Path, candidates: Sequence[Candidate], rungs: Sequence[Rung]) -> RaceState:
    """Return the state of the race that is stored in ``path``, or that of a new race.

    A race with one rung may get more candidates later; one with several may not, because its
    decisions would have been others.
    """
    new = RaceState(tuple(candidates), tuple(rungs))
    if not path.exists():
        return new
    advice = "--fresh sets the old folder aside and starts anew"
    try:
        old = RaceState.from_json(read_json(path, advice=advice))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged_file(path, repr(error), advice) from None
    if [rung.updates for rung in old.rungs] != [rung.updates for rung in rungs]:
        raise UserError(f"{path}: was made with other rungs; choose another folder, or {advice}")
    if len(rungs) > 1 and old.candidates != new.candidates:
        raise UserError(f"{path}: was made with other candidates; choose another folder, or {advice}")
    if old.candidates != new.candidates:  # one rung: nothing was decided that more candidates could change
        return replace(new, scores=old.scores)
    return old


def race(
    candidates: Sequence[Candidate],
    rungs: Sequence[Rung],
    path: Path,
    compete: Callable[[Sequence[Task]], Iterable[Outcome | Other]],
) -> Iterator[RaceEvent | Other]:
    """Race the candidates and yield what happens; the state is stored in ``path``.

    ``compete`` trains the runs of the tasks, in any order and as many at once as it likes, and
    yields an outcome for each. Whatever else it yields is passed on. A task without an outcome means
    that the race was interrupted.
    """
    state = open_race(path, candidates, rungs)
    write_json(path, state.to_json())
    while len(state.decisions) < len(state.rungs):
        rung = len(state.decisions)
        updates = state.rungs[rung].updates
        entrants = state.entrants(rung)
        known = state.scores_of(rung)
        yield RungStarted(rung, updates, tuple(candidate.name for candidate in entrants))
        tasks = [
            Task(run, candidate.name, rung, updates)
            for candidate in entrants
            for run in candidate.runs
            if run not in known
        ]
        waiting = {task.run for task in tasks}
        for event in compete(tasks) if tasks else ():
            if isinstance(event, RunScored) and not math.isfinite(event.score):
                event = RunFailed(event.run, f"its score is {event.score}")
            if isinstance(event, RunScored):
                state = state.with_score(rung, event.run, event.score)
                write_json(path, state.to_json())
                waiting.discard(event.run)
            elif isinstance(event, RunFailed) and not event.killed:
                waiting.discard(event.run)
            yield event
        if waiting:
            yield RaceEnded(False, state.standings())
            return
        decision = state.decide(rung)
        is_last = rung + 1 == len(state.rungs)
        state = replace(state, decisions=(*state.decisions, decision))
        if decision.kept and not (is_last and decision.failed):
            write_json(path, state.to_json())  # otherwise the same race tries the failed runs again
        yield decision
        if not decision.kept:
            break
    yield RaceEnded(True, state.standings())
