"""The results of a sweep: candidates sorted by dev, with means and t-intervals over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dragoman.evaluation.metrics import METRICS, Spread, spread
from dragoman.evaluation.metrics.seeds import interval
from dragoman.files import read_json
from dragoman.training.race import RaceState, Standing
from dragoman.training.seeds import read_report
from dragoman.training.sweep.run import RACE, Sweep, is_complete

RESULTS = "results.json"


@dataclass(frozen=True, slots=True)
class CandidateResult:
    """What is known of one candidate."""

    name: str
    folder: str
    preset: str
    values: Mapping[str, Any]  # of the settings that are varied
    state: str  # "finished", "stopped" (by halving), "failed" or "unfinished"
    updates: int | None  # of the rung it got to; None: to the end of each run
    dev: Spread | None  # the headline metric: of the final weights or, where it was stopped, of the best validation
    test: Spread | None  # of the final weights, where test was evaluated for every seed
    tested: int = 0  # seeds that test was evaluated for


@dataclass(frozen=True, slots=True)
class SweepResults:
    """All candidates, the best first."""

    name: str
    metric: str
    label: str
    unit: str
    better: str
    seeds: int
    rungs: list[int | None]
    has_test: bool
    candidates: list[CandidateResult]

    def to_json(self) -> dict[str, Any]:
        """Return the results as plain values, ready for ``json.dumps``."""
        return asdict(self)

    def to_text(self) -> str:
        """Return the results as a table, and what was chosen by what."""
        unit = f" ({self.unit})" if self.unit else ""
        lines = [f"{self.label}{unit}: means over {self.seeds} seed{'s' if self.seeds > 1 else ''}", ""]
        if self.seeds > 1:
            lines[0] += ", 95 % t-intervals over seeds in brackets"
        width = max(len("model"), *(len(each.name) for each in self.candidates))
        has_test = any(each.test is not None for each in self.candidates)
        head = f"  {'model':<{width}}  {'dev':>8}{'':<18}" + (f"  {'test':>8}" if has_test else "")
        lines.append(head.rstrip())
        for each in self.candidates:
            cells = f"{_cell(each.dev):<26}" + (f"  {_cell(each.test):<26}" if has_test else "")
            lines.append(f"  {each.name:<{width}}  {cells}  {describe_state(each)}".rstrip())
        lines += ["", *(f"  {sentence}" for sentence in self.conclusions())]
        if self.candidates[0].state == "finished":
            lines.append(f"  its runs are in {self.candidates[0].folder}")
        return "\n".join(lines) + "\n"

    def conclusions(self) -> list[str]:
        """Say what was chosen, by what, and who has seen test."""
        best = self.candidates[0]
        if best.state != "finished":
            return ["no candidate is trained to the end yet"]
        sentences = [f"best on dev: {best.name}"]
        equal = [each.name for each in self.candidates[1:] if each.state == "finished" and _is_equal(each, best)]
        if equal:
            names = ", ".join(equal[:3]) + (f" and {len(equal) - 3} more" if len(equal) > 3 else "")
            sentences.append(f"no better on dev than {names}: of equal ones, the first of the file is chosen")
        tested = sum(each.test is not None for each in self.candidates)
        partly = [each for each in self.candidates if each.tested and each.test is None]
        if not self.has_test:
            sentences.append("there are no test rows; the dev score of the best one of several flatters it")
        elif tested == 1:
            sentences.append("test was evaluated after the choice, for the best one only")
        elif tested:
            sentences.append(
                f"test was evaluated for {tested} candidates; a choice by these scores would flatter it, the choice "
                "by dev does not"
            )
        elif not partly:
            sentences.append("test was not evaluated; the dev score of the best one of several flatters it")
        sentences += [
            f"test was evaluated for {each.tested} of {self.seeds} seeds of {each.name}, and has no score before all "
            "are done; the same command goes on"
            for each in partly
        ]
        return sentences


def _is_equal(one: CandidateResult, other: CandidateResult) -> bool:
    return one.dev is not None and other.dev is not None and one.dev.mean == other.dev.mean


def read_results(sweep: Sweep, standings: Sequence[Standing]) -> SweepResults:
    """Collect the results of a sweep from its folder. ``standings``: those at the end of the race."""
    state = RaceState.from_json(read_json(sweep.folder / RACE))
    metric = METRICS[sweep.metric]
    return SweepResults(
        name=sweep.folder.resolve().name,
        metric=metric.name,
        label=metric.label,
        unit=metric.unit,
        better=metric.better,
        seeds=len(sweep.grid.seed_numbers),
        rungs=[rung.updates for rung in sweep.rungs],
        has_test=sweep.has_test,
        candidates=[_result(sweep, state, standing) for standing in standings],
    )


def _result(sweep: Sweep, state: RaceState, standing: Standing) -> CandidateResult:
    combination = sweep.combination(standing.name)
    jobs = sweep.runs(standing.name)
    known = state.scores_of(standing.rung)
    sign = 1 if METRICS[sweep.metric].better == "higher" else -1
    scores = [sign * known[job.name] for job in jobs if job.name in known]
    complete = is_complete(sweep, standing)
    reports = [read_report(Path(job.out), "test") for job in jobs] if complete else []
    test = [report.scores[sweep.metric].value for report in reports if report and sweep.metric in report.scores]
    decided = standing.rung < len(state.decisions)
    return CandidateResult(
        name=combination.name,
        folder=str(sweep.folder / combination.name),
        preset=combination.preset,
        values=dict(combination.values),
        state="finished" if complete else "failed" if standing.failed else "stopped" if decided else "unfinished",
        updates=sweep.rungs[standing.rung].updates,
        dev=spread(scores) if scores else None,
        test=spread(test) if test and len(test) == len(jobs) else None,
        tested=len(test),
    )


def describe_state(result: CandidateResult) -> str:
    """Say how far a candidate got, if not to the end."""
    if result.state == "finished":
        return ""
    if result.state == "stopped":
        return f"stopped at update {result.updates:,} (halving)"
    return result.state


def _cell(each: Spread | None) -> str:
    if each is None:
        return f"{'–':>8}"
    return f"{each.mean:8.2f}  {interval(each.low, each.high) if each.low is not None else ''}".rstrip()
