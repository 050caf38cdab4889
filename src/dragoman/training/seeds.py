"""Train the same model with several seeds, side by side, each in a run folder of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dragoman.config import merge
from dragoman.errors import UserError
from dragoman.evaluation.metrics import Report, SeedsReport, join_seeds
from dragoman.files import damaged_file, write_atomically
from dragoman.process.devices import available_cores
from dragoman.runs.folder import (
    CHECKPOINT,
    IDENTITY,
    NewRun,
    check_folder,
    holds_exactly,
    with_recorded_shares,
)
from dragoman.runs.groups import refuse_links, runs_of, seed_folder
from dragoman.runs.history import EVALUATION, evaluated_update, read_evaluation
from dragoman.training.checkpoints.checkpoint import read_progress
from dragoman.training.page import REPORT, write_group_page
from dragoman.training.pool import share_threads
from dragoman.training.worker import Job


@dataclass(frozen=True, slots=True)
class Workers:
    """How many runs train at once, and with how many threads each."""

    count: int
    threads: int

    def describe(self) -> str:
        """Describe them in words."""
        threads = f"{self.threads} thread{'s' if self.threads > 1 else ''}"
        return f"{self.count} at a time with {threads} each" if self.count > 1 else f"one at a time with {threads}"


def choose_workers(runs: int, wanted: int | None, threads: int | None = None) -> Workers:
    """Return the workers for so many runs: by default one for each core, which share the cores."""
    cores = available_cores()
    count = max(1, min(runs, wanted or cores))
    return Workers(count, threads or share_threads(count, cores))


def seed_jobs(job: Job, seeds: Sequence[int], threads: int) -> dict[int, Job]:
    """Return a job for each seed; ``job.out`` is the folder of the group."""
    jobs = {}
    for seed in seeds:
        changes: dict[str, Any] = {"training": {"seed": seed, "threads": threads}}
        folder = seed_folder(Path(job.out), seed)
        name = f"{job.name}/{folder.name}" if job.name else folder.name
        jobs[seed] = replace(job, name=name, out=str(folder), settings=merge(job.settings, changes))
    return jobs


def pin_shares(jobs: Mapping[int, Job], shares: int | None) -> dict[int, Job]:
    """Return the jobs with this number of shares for each run that is not there yet.

    So all seeds compute alike, even if some of them start when there are other workers.
    """
    pinned = {}
    for seed, job in jobs.items():
        is_new = shares is not None and not (Path(job.out) / IDENTITY).exists()
        changes = {"training": {"shares": shares}} if is_new else {}
        pinned[seed] = replace(job, settings=merge(job.settings, changes))
    return pinned


def refuse_single_run(group: Path) -> None:
    """Refuse the folder of a single run where the folders of several seeds are to be."""
    if (group / IDENTITY).exists():
        raise UserError(
            f"{group}: holds a single run, not the runs of several seeds; choose another --out, or --fresh to set it "
            "aside"
        )


def check_seeds(jobs: Mapping[int, Job], run: NewRun) -> None:
    """Refuse folders that hold other runs, or that are links. ``run`` is that of any seed."""
    for job in jobs.values():
        refuse_links(Path(job.out).parent, [Path(job.out)])
    for seed, job in jobs.items():
        folder = Path(job.out)
        check_folder(folder, with_recorded_shares(with_seed(run, seed), folder))


def is_finished(job: Job, run: NewRun, side: str) -> bool:
    """Return whether a run is trained to the end with just these settings, and evaluated."""
    folder = Path(job.out)
    if not holds_exactly(folder, with_recorded_shares(run, folder)) or not (folder / CHECKPOINT).exists():
        return False
    progress = read_progress(folder / CHECKPOINT)
    return bool(progress.done) and evaluated_update(folder, side) == progress.update


def with_seed(run: NewRun, seed: int) -> NewRun:
    """Return the same run with another seed."""
    recipe = run.setup.recipe
    training = recipe.training.model_copy(update={"seed": seed})
    return replace(run, setup=replace(run.setup, recipe=recipe.model_copy(update={"training": training})))


def read_report(folder: Path, side: str | None = None) -> Report | None:
    """Return the report on the final weights of a run, if it was evaluated on this side of the data."""
    if (evaluation := read_evaluation(folder, side)) is None:
        return None
    try:
        return Report.from_json(evaluation)
    except (KeyError, TypeError, AttributeError) as error:
        advice = "delete it, and the same command evaluates the run again"
        raise damaged_file(folder / EVALUATION, repr(error), advice) from None


def write_group_report(group: Path, out: Path | None = None) -> Path:
    """Write the page of a group whose runs were evaluated, and return its path."""
    folders = runs_of(group)
    side = (read_evaluation(folders[0]) or {}).get("side")
    report = read_reports(folders, side)
    if report is None or side is None:
        raise UserError(f"{group}: no run has been evaluated yet; the command that trains them resumes")
    path = out or group / REPORT
    write_atomically(path, write_group_page(group.resolve().name, side, report))
    return path


def read_reports(folders: Sequence[Path], side: str | None = None) -> SeedsReport | None:
    """Return the means over the runs that were evaluated; None where there is none."""
    reports = {folder.name: report for folder in folders if (report := read_report(folder, side)) is not None}
    return join_seeds(reports) if reports else None
