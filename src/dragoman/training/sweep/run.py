"""Train the runs of a sweep: a race by dev score, then test for the winner."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from dragoman.config import merge
from dragoman.errors import UserError
from dragoman.evaluation.metrics import METRICS
from dragoman.files import read_json, write_json
from dragoman.runs.groups import refuse_links
from dragoman.runs.history import evaluated_update, read_metrics
from dragoman.training.plan import Plan
from dragoman.training.pool import JobEnded, PoolEvent, run_jobs
from dragoman.training.race import (
    Candidate,
    RaceEnded,
    RaceEvent,
    RunFailed,
    Rung,
    RunScored,
    Standing,
    Task,
    make_rungs,
    race,
)
from dragoman.training.run import preview
from dragoman.training.seeds import Workers, read_report, seed_jobs
from dragoman.training.sweep.grid import Combination, Grid, expand_grid
from dragoman.training.trainer import Trainer
from dragoman.training.worker import Job

SWEEP = "sweep.json"  # what is compared, to recognise the sweep
RACE = "race.json"  # the scores and decisions so far
MAY_GROW = ("presets", "seeds", "grid")  # without halving: what may change when a sweep is resumed


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep in its folder: what competes, and by what jobs it is trained."""

    folder: Path
    grid: Grid
    combinations: Sequence[Combination]
    candidates: Sequence[Candidate]
    rungs: Sequence[Rung]
    jobs: Mapping[str, Job]  # by run
    workers: Workers
    metric: str  # the headline metric of all runs
    has_test: bool

    def combination(self, name: str) -> Combination:
        """Return a candidate's preset and settings by its name."""
        return next(combination for combination in self.combinations if combination.name == name)

    def runs(self, name: str) -> list[Job]:
        """Return the jobs of a candidate, in the order of the seeds."""
        return [self.jobs[run] for candidate in self.candidates if candidate.name == name for run in candidate.runs]


def open_sweep(folder: Path, grid: Grid, workers: Workers, planned: Plan) -> Sweep:
    """Return the sweep of a folder; one that is there already must be the same.

    ``planned`` is the plan of the first candidate. Its data and metric are those of all.
    """
    combinations = expand_grid(grid)
    described = grid.model_dump(mode="json", exclude={"train", "dev", "test"})
    identity: dict[str, Any] = {**described, "data": planned.data.fingerprint()}  # wherever the files are
    path = folder / SWEEP
    threads = workers.threads
    if path.exists():
        recorded = read_json(path, advice="--fresh sets the old sweep aside")
        may_change = () if grid.halving else MAY_GROW
        for key, value in identity.items():
            if key not in may_change and recorded.get(key) != value:
                raise UserError(
                    f"{folder}: holds another sweep (different: {key}); choose another --out, or --fresh to set it "
                    "aside"
                )
        threads = recorded.get("threads", threads)  # they set the shares of new runs, which all are to have alike
    elif folder.exists() and any(entry.name[0] != "." for entry in folder.iterdir()):
        raise UserError(f"{folder}: holds files that belong to no sweep; choose another --out, or --fresh")
    sweep = make_sweep(folder, grid, combinations, replace(workers, threads=threads), planned)
    refuse_links(folder, [Path(job.out) for job in sweep.jobs.values()])
    write_json(path, {**identity, "threads": threads})
    return sweep


def make_sweep(folder: Path, grid: Grid, combinations: Sequence[Combination], workers: Workers, planned: Plan) -> Sweep:
    """Return a sweep with the jobs of all its runs. Nothing is written."""
    metric = planned.metric.headline
    jobs: dict[str, Job] = {}
    candidates = []
    for combination in combinations:
        common: dict[str, Any] = {} if planned.system.is_language_model else {"metric": metric}
        job = candidate_job(grid, combination, folder, merge(common, combination.settings))
        runs = seed_jobs(job, grid.seed_numbers, workers.threads)
        jobs |= {each.name: each for each in runs.values()}
        candidates.append(Candidate(combination.name, tuple(each.name for each in runs.values())))
    halving = grid.halving
    rungs = (
        make_rungs(len(candidates), grid.budget.max_updates)
        if halving is None
        else make_rungs(len(candidates), grid.budget.max_updates, halving.first, halving.factor)
    )
    return Sweep(folder, grid, combinations, candidates, rungs, jobs, workers, metric, bool(planned.data.test))


def candidate_job(grid: Grid, combination: Combination, folder: Path, settings: Mapping[str, Any]) -> Job:
    """Return the job of a candidate, whose folder will hold its seeds; test is left unseen."""
    return Job(
        combination.name, str(folder / combination.name), grid.files, grid.dev, grid.test, combination.preset,
        settings=dict(settings), evaluate_on="dev",
    )  # fmt: skip


def preview_candidate(grid: Grid, combination: Combination, threads: int) -> tuple[Plan, Trainer]:
    """Plan the first seed of a candidate, as it will be trained. Nothing is written."""
    made: list[Trainer] = []
    changes = {"training": {"seed": grid.seed_numbers[0], "threads": threads}}
    planned = preview(
        grid.files, grid.dev, grid.test, preset=combination.preset,
        settings=merge(combination.settings, changes), fresh=True,
        on_plan=lambda plan, trainer, folder: made.append(trainer),
    )  # fmt: skip
    return planned, made[0]


def run_sweep(
    sweep: Sweep, should_stop: Callable[[], bool] = lambda: False, lock: int | None = None
) -> Iterator[RaceEvent | PoolEvent]:
    """Train the runs and yield what happens. Ranking looks at dev only."""

    def compete(tasks: Sequence[Task]) -> Iterator[RunScored | RunFailed | PoolEvent]:
        is_last = tasks[0].rung + 1 == len(sweep.rungs)
        jobs = [replace(sweep.jobs[task.run], pause_at=None if is_last else task.updates) for task in tasks]
        for event in run_jobs(jobs, sweep.workers.count, sweep.workers.threads, should_stop, lock):
            yield event
            if not isinstance(event, JobEnded):
                continue
            if event.is_done:
                yield RunScored(event.job.name, final_score(event.job) if is_last else paused_score(event.job))
            elif not event.is_interrupted:
                yield RunFailed(event.job.name, event.describe(), event.is_killed)

    return race(sweep.candidates, sweep.rungs, sweep.folder / RACE, compete)


def final_score(job: Job) -> float:
    """Return the headline score of the final weights on dev; higher is better."""
    report = read_report(Path(job.out), "dev")
    if report is None:
        return float("nan")
    return report.value if METRICS[report.headline].better == "higher" else -report.value


def paused_score(job: Job) -> float:
    """Return the best score of a validation up to the update at which a run was paused."""
    most = job.pause_at or 0
    events = read_metrics(Path(job.out)).events
    scores = [event["score"] for event in events if event["event"] == "validated" and event["update"] <= most]
    return max(scores, default=float("nan"))


def tests_to_run(sweep: Sweep, ended: RaceEnded, which: Literal["winner", "all", "none"]) -> list[Job]:
    """Return the jobs that evaluate finished runs on test: of the best candidate, or of all."""
    finished = [each for each in ended.standings if is_complete(sweep, each)]
    chosen = {"winner": finished[:1], "all": finished, "none": []}[which]
    jobs = [replace(job, evaluate_on="test") for each in chosen for job in sweep.runs(each.name)]
    return [job for job in jobs if sweep.has_test and evaluated_update(Path(job.out), "test") is None]


def is_complete(sweep: Sweep, standing: Standing) -> bool:
    """Return whether all runs of a candidate were trained to the end."""
    return standing.score is not None and standing.rung + 1 == len(sweep.rungs)


def estimate_updates(sweep: Sweep, updates: int) -> int:
    """Return how many updates all runs make together, if each that gets to the end makes ``updates``."""
    total, left, before = 0, len(sweep.candidates), 0
    for rung in sweep.rungs:
        reached = min(rung.updates or updates, updates)
        total += left * max(0, reached - before)
        before, left = reached, rung.keep
    return total * len(sweep.grid.seed_numbers)
