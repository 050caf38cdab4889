"""Plan and train the runs of several seeds, each in a process of its own, and read their means."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dragoman.errors import UserError
from dragoman.evaluation.metrics import SeedsReport
from dragoman.files import exclusive_lock
from dragoman.process.place import find_place
from dragoman.recipe.layers import gather_settings
from dragoman.recipe.training import TrainingConfig
from dragoman.runs.folder import NewRun, move_aside
from dragoman.training import seeds as group
from dragoman.training.group_display import GroupDisplay
from dragoman.training.plan import Plan
from dragoman.training.pool import JobEnded, run_jobs
from dragoman.training.run import describe_run, preview
from dragoman.training.trainer import Trainer
from dragoman.training.worker import Job


@dataclass(frozen=True, slots=True)
class SeedRuns:
    """The runs of several seeds as they will be trained. Planning them has written nothing."""

    folder: Path  # of the group
    jobs: Mapping[int, Job]  # by seed
    workers: group.Workers
    side: Literal["test", "dev"]  # that the final weights are evaluated on
    description: NewRun  # of the first seed

    @property
    def folders(self) -> list[Path]:
        """Return the run folders in the order of the seeds."""
        return [Path(job.out) for job in self.jobs.values()]

    def unfinished(self) -> list[Job]:
        """Return the jobs of the runs that are still to be trained or evaluated."""
        return [
            job
            for seed, job in self.jobs.items()
            if not group.is_finished(job, group.with_seed(self.description, seed), self.side)
        ]


@dataclass(frozen=True, slots=True)
class TrainedSeeds:
    """How the training of several seeds ended."""

    report: SeedsReport | None  # the means over the runs that were evaluated
    page: Path | None  # that shows them, if no run failed
    failures: Sequence[JobEnded]
    interrupted: bool


def plan_seeds(
    job: Job,
    count: int,
    *,
    workers: int | None = None,
    fresh: bool = False,
    on_plan: Callable[[Plan, Trainer, Path], None] = lambda *_: None,
) -> SeedRuns:
    """Plan a run for each of ``count`` seeds, which begin with the one that the settings name.

    ``job.out`` is the folder of the group, and ``job.settings`` are those of all runs. ``on_plan`` gets the plan of the
    first run, whose data and model are those of all, and the folder of the group. What training would refuse is
    refused here.
    """
    folder = Path(job.out)
    if find_place().count > 1:
        raise UserError(
            "--seeds trains in processes of its own; leave out torchrun, or give torchrun one seed at a time: --seed"
        )
    if "-" in (*job.train, job.dev, job.test):
        raise UserError("--seeds: every run reads the data itself, and standard input can be read once; give a file")
    if not fresh:
        group.refuse_single_run(folder)
    asked = training_number(job, "seed")
    begin = TrainingConfig().seed if asked is None else asked
    seeds = range(begin, begin + count)
    crew = group.choose_workers(count, workers, training_number(job, "threads"))
    jobs = group.seed_jobs(job, seeds, crew.threads)
    first = jobs[seeds[0]]
    planned = preview(
        first.train, first.dev, first.test, out=first.out, preset=first.preset, config=first.config,
        settings=first.settings, fresh=fresh, on_plan=lambda plan, trainer, _: on_plan(plan, trainer, folder),
    )  # fmt: skip
    description = describe_run(planned)
    jobs = group.pin_shares(jobs, planned.system.recipe.training.shares)
    if not fresh:
        group.check_seeds(jobs, description)
    return SeedRuns(folder, jobs, crew, "test" if planned.data.test else "dev", description)


def training_number(job: Job, name: str) -> int | None:
    """Return a whole number of the training settings that was asked for, wherever: preset, config file or call."""
    training: Any = gather_settings(job.preset, job.config, job.settings).get("training")
    value = training.get(name) if isinstance(training, Mapping) else None
    return value if isinstance(value, int) else None


def set_aside(folder: Path) -> None:
    """Rename the folder of an earlier group, if there is one."""
    if folder.exists():
        with exclusive_lock(folder):
            move_aside(folder)


def train_seeds(
    runs: SeedRuns, todo: Sequence[Job], display: GroupDisplay, should_stop: Callable[[], bool]
) -> TrainedSeeds:
    """Train the runs of ``todo``, and return the means over all runs.

    A group that was interrupted is resumed by the same jobs.
    """
    failures: list[JobEnded] = []
    interrupted = False
    with exclusive_lock(runs.folder) as lock:
        try:
            for event in run_jobs(todo, runs.workers.count, runs.workers.threads, should_stop, lock.descriptor):
                display(event)
                if isinstance(event, JobEnded) and not event.is_done:
                    interrupted = interrupted or event.is_interrupted
                    failures += [] if event.is_interrupted else [event]
        finally:
            display.close()
        interrupted = interrupted or should_stop()
    if interrupted:
        return TrainedSeeds(None, None, failures, interrupted)
    report = group.read_reports(runs.folders, runs.side)
    return TrainedSeeds(report, None if failures else group.write_group_report(runs.folder), failures, interrupted)
