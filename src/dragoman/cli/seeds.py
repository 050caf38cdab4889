"""``train --seeds``: the same model with several seeds, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from dragoman.cli.messages import Messages

if TYPE_CHECKING:
    from dragoman.training.plan import Plan
    from dragoman.training.pool import JobEnded
    from dragoman.training.trainer import Trainer
    from dragoman.training.worker import Job


def train_seeds(job: Job, count: int, *, workers: int | None, fresh: bool, dry_run: bool, messages: Messages) -> None:
    """Train a run for each seed, print the means over them, and write the page of the group.

    ``job.out`` is the folder of the group, and ``job.settings`` are those of all runs.
    """
    from dragoman.process.signals import stop_on_signal
    from dragoman.runs.card import scores_heading
    from dragoman.training import seed_runs
    from dragoman.training.group_display import choose_display
    from dragoman.training.plan_text import print_plan

    def show_plan(plan: Plan, trainer: Trainer, folder: Path) -> None:
        if not messages.quiet:
            print_plan(plan, trainer, every_setting=messages.verbose)

    runs = seed_runs.plan_seeds(job, count, workers=workers, fresh=fresh, on_plan=show_plan)
    if dry_run:
        messages.note(
            f"  {count} runs, {runs.workers.describe()}; nothing was written or trained; without --dry-run, they are "
            f"saved in {runs.folder}"
        )
        return
    if fresh:
        seed_runs.set_aside(runs.folder)
    todo = runs.unfinished()
    finished = f"; finished before: {count - len(todo)}" if len(todo) < count else ""
    messages.note(f"  {count} seeds, {runs.workers.describe()}{finished}; the figures above are those of one run")
    messages.note(f"  everything is saved in {runs.folder}; Ctrl-C stops all, and the same command resumes\n")
    with stop_on_signal() as should_stop:
        trained = seed_runs.train_seeds(runs, todo, choose_display(messages.quiet), should_stop)
    if trained.interrupted:
        messages.note("stopped; everything is saved, and the same command resumes from here")
        raise typer.Exit(130)
    if trained.report is not None:
        typer.echo(f"\n{scores_heading(runs.side)}\n\n{trained.report.to_text()}")
    if trained.failures:
        raise typer.Exit(say_failures(trained.failures, count))
    typer.echo(f"report: {trained.page}")
    typer.echo(f"saved in {runs.folder}; try: dragoman evaluate {runs.folder} test.tsv")


def say_failures(failures: Sequence[JobEnded], runs: int) -> int:
    """Name the runs that failed on standard error, and return the exit code."""
    typer.echo(f"dragoman: {len(failures)} of {runs} runs failed; the same command tries them again", err=True)
    for failure in failures:
        typer.echo(f"  {failure.job.name}: {failure.describe()}", err=True)
    return 2 if all(failure.code == 2 for failure in failures) else 1
