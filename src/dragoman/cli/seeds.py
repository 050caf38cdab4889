"""``train --seeds``: the same model with several seeds, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dragoman.cli.messages import Messages

if TYPE_CHECKING:
    from dragoman.training.plan import Plan
    from dragoman.training.pool import JobEnded
    from dragoman.training.trainer import Trainer
    from dragoman.training.worker import Job


def train_seeds(
    job: Job, seeds: Sequence[int], *, workers: int | None, fresh: bool, dry_run: bool, messages: Messages
) -> None:
    """Train a run for each seed, print the means over them, and write the page of the group.

    ``job.out`` is the folder of the group, and ``job.settings`` are those of all runs.
    """
    from dragoman.errors import UserError
    from dragoman.files import exclusive_lock
    from dragoman.process.signals import stop_on_signal
    from dragoman.runs.card import scores_heading
    from dragoman.runs.folder import move_aside
    from dragoman.training import seeds as group
    from dragoman.training.group_display import choose_display
    from dragoman.training.pool import JobEnded, run_jobs
    from dragoman.training.run import describe_run, preview

    folder = Path(job.out)
    if "-" in (*job.train, job.dev, job.test):
        raise UserError("--seeds: every run reads the data itself, and standard input can be read once; give a file")
    if not fresh:
        group.refuse_single_run(folder)
    crew = group.choose_workers(len(seeds), workers, _threads(job.settings))
    jobs = group.seed_jobs(job, seeds, crew.threads)
    first = jobs[seeds[0]]
    planned = preview(
        first.train, first.dev, first.test, out=first.out, preset=first.preset, config=first.config,
        settings=first.settings, fresh=fresh,
        on_plan=lambda plan, trainer, _: None if messages.quiet else _print_plan(plan, trainer, messages.verbose),
    )  # fmt: skip
    description = describe_run(planned)
    jobs = group.pin_shares(jobs, planned.system.recipe.training.shares)
    if not fresh:
        group.check_seeds(jobs, description)
    if dry_run:
        messages.note(
            f"  {len(seeds)} runs, {crew.describe()}; nothing was written or trained; without --dry-run, they are "
            f"saved in {folder}"
        )
        return
    if fresh and folder.exists():
        with exclusive_lock(folder):
            move_aside(folder)
    side = "test" if planned.data.test else "dev"
    todo = [
        each for seed, each in jobs.items() if not group.is_finished(each, group.with_seed(description, seed), side)
    ]
    finished = f"; finished before: {len(seeds) - len(todo)}" if len(todo) < len(seeds) else ""
    messages.note(f"  {len(seeds)} seeds, {crew.describe()}{finished}; the figures above are those of one run")
    messages.note(f"  everything is saved in {folder}; Ctrl-C stops all, and the same command resumes\n")
    del planned  # its memory is better used by the workers
    failures: list[JobEnded] = []
    interrupted = False
    display = choose_display(messages.quiet)
    with exclusive_lock(folder) as lock, stop_on_signal() as should_stop:
        try:
            for event in run_jobs(todo, crew.count, crew.threads, should_stop, lock.descriptor):
                display(event)
                if isinstance(event, JobEnded) and not event.is_done:
                    interrupted = interrupted or event.is_interrupted
                    failures += [] if event.is_interrupted else [event]
        finally:
            display.close()
        interrupted = interrupted or should_stop()
    if interrupted:
        messages.note("stopped; everything is saved, and the same command resumes from here")
        raise typer.Exit(130)
    report = group.read_reports([Path(each.out) for each in jobs.values()], side)
    if report is not None:
        typer.echo(f"\n{scores_heading(side)}\n\n{report.to_text()}")
    if not failures:
        typer.echo(f"report: {group.write_group_report(folder)}")
    if failures:
        raise typer.Exit(say_failures(failures, len(seeds)))
    typer.echo(f"saved in {folder}; try: dragoman evaluate {folder} test.tsv")


def first_seed(settings: Mapping[str, Any]) -> int:
    """Return the seed that was asked for, else the default one."""
    from dragoman.recipe.training import TrainingConfig

    training = settings.get("training")
    seed = training.get("seed") if isinstance(training, dict) else None
    return seed if isinstance(seed, int) else TrainingConfig().seed


def say_failures(failures: Sequence[JobEnded], runs: int) -> int:
    """Name the runs that failed on standard error, and return the exit code."""
    typer.echo(f"dragoman: {len(failures)} of {runs} runs failed; the same command tries them again", err=True)
    for failure in failures:
        typer.echo(f"  {failure.job.name}: {failure.describe()}", err=True)
    return 2 if all(failure.code == 2 for failure in failures) else 1


def _print_plan(plan: Plan, trainer: Trainer, every_setting: bool) -> None:
    from dragoman.training.display import print_plan

    print_plan(plan, trainer, every_setting=every_setting)


def _threads(settings: dict[str, Any]) -> int | None:
    """Return the number of threads that was asked for, if it was."""
    training = settings.get("training")
    threads = training.get("threads") if isinstance(training, dict) else None
    return threads if isinstance(threads, int) else None
