"""The verb ``sweep``: presets, settings and seeds in all combinations, side by side, in one table."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.cli.messages import Messages, Quiet, Verbose, terminal_width
from dragoman.cli.options import Json, print_json

if TYPE_CHECKING:
    from dragoman.training.group_display import GroupDisplay
    from dragoman.training.plan import Plan
    from dragoman.training.pool import JobEnded, PoolEvent
    from dragoman.training.race import RaceEnded, RaceEvent
    from dragoman.training.seeds import Workers
    from dragoman.training.sweep.grid import Grid
    from dragoman.training.sweep.run import Sweep


class Tested(StrEnum):
    """Which candidates are evaluated on test."""

    winner = "winner"
    all = "all"
    none = "none"


def sweep(
    grid: Annotated[
        Path, typer.Argument(help="TOML file that says what to combine.", metavar="GRID", show_default=False)
    ],
    out: Annotated[Path | None, typer.Option(help="Folder of the sweep.", show_default="runs/NAME")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="The most runs that train at once.", show_default="one for each core")
    ] = None,
    test: Annotated[
        Tested,
        typer.Option(help="Which candidates to evaluate on test, after the best one was chosen by dev."),
    ] = Tested.winner,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start again; an old sweep in the same folder is renamed.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the runs and the expected time, and write nothing.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train every combination of presets, settings and seeds, and rank them by dev.

    Ctrl-C stops and saves. The same command resumes where it stopped.
    """
    from dragoman.files import exclusive_lock, write_atomically, write_json
    from dragoman.process.signals import stop_on_signal
    from dragoman.runs.folder import move_aside
    from dragoman.training.group_display import choose_display
    from dragoman.training.page import REPORT
    from dragoman.training.seeds import choose_workers
    from dragoman.training.sweep.grid import expand_grid, read_grid
    from dragoman.training.sweep.page import write_sweep_page
    from dragoman.training.sweep.results import RESULTS, read_results
    from dragoman.training.sweep.run import make_sweep, open_sweep, preview_candidate

    messages = Messages.of(quiet, verbose)
    spec = read_grid(grid)
    combinations = expand_grid(spec)
    folder = out or Path("runs") / grid.stem
    crew = choose_workers(len(combinations) * len(spec.seed_numbers), workers)
    planned, _ = preview_candidate(spec, combinations[0], crew.threads)
    _print_data(planned, messages)
    if dry_run:
        _print_estimate(make_sweep(folder, spec, combinations, crew, planned), spec, crew)
        return
    if fresh and folder.exists():
        with exclusive_lock(folder):
            move_aside(folder)
    display = choose_display(quiet)
    with exclusive_lock(folder) as lock, stop_on_signal() as should_stop:
        whole = open_sweep(folder, spec, crew, planned)
        del planned  # its memory is better used by the workers
        messages.note(
            f"{len(combinations)} candidates, {len(spec.seed_numbers)} seeds each: {len(whole.jobs)} runs, "
            f"{whole.workers.describe()}\n"
            f"everything is saved in {folder}; Ctrl-C stops all, and the same command resumes\n"
        )
        try:
            ended, failures, stopped = _run(whole, display, should_stop, lock.descriptor, test)
        finally:
            display.close()
        interrupted = should_stop() or stopped or not (ended.finished or failures)
        results = read_results(whole, ended.standings)
        write_json(folder / RESULTS, results.to_json())
        write_atomically(folder / REPORT, write_sweep_page(results))
    if interrupted:
        messages.note("stopped; everything is saved, and the same command resumes from here")
        raise typer.Exit(130)
    if as_json:
        print_json(results.to_json())
    else:
        typer.echo(f"\n{results.to_text()}\nreport: {folder / REPORT}")
    if failures:
        from dragoman.cli.seeds import say_failures

        raise typer.Exit(say_failures(failures, len(whole.jobs)))


def _run(
    whole: Sweep, display: GroupDisplay, should_stop: object, lock: int | None, test: Tested
) -> tuple[RaceEnded, list[JobEnded], bool]:
    """Run the race, then the evaluations on test.

    Return how the race ended, the workers that failed, and whether some were interrupted.
    """
    from dragoman.training.pool import JobEnded, run_jobs
    from dragoman.training.race import RaceEnded
    from dragoman.training.sweep.run import run_sweep, tests_to_run

    assert callable(should_stop)
    stopped: list[JobEnded] = []  # before they were done

    def show(event: PoolEvent) -> None:
        display(event)
        if isinstance(event, JobEnded) and not event.is_done:
            stopped.append(event)

    ended = RaceEnded(False, ())
    for event in run_sweep(whole, should_stop, lock):
        if isinstance(event, RaceEnded):
            ended = event
        elif (sentence := _describe(event, whole)) is not None:
            display.say(sentence)
        elif _is_pool_event(event):
            show(event)  # type: ignore[arg-type]
    if ended.finished and not should_stop():
        jobs = tests_to_run(whole, ended, test.value)
        if jobs:
            display.say(f"evaluating {len(jobs)} runs on test")
        for pool_event in run_jobs(jobs, whole.workers.count, whole.workers.threads, should_stop, lock):
            show(pool_event)
    failures = [event for event in stopped if not event.is_interrupted]
    return ended, failures, len(failures) < len(stopped)


def _is_pool_event(event: RaceEvent | PoolEvent) -> bool:
    from dragoman.training.pool import JobEnded, JobStarted, Waiting

    return isinstance(event, JobStarted | JobEnded | Waiting)


def _describe(event: RaceEvent | PoolEvent, whole: Sweep) -> str | None:
    """Say in a sentence what the race decided."""
    from dragoman.training.race import RungDecided, RungStarted

    is_race = len(whole.rungs) > 1
    if isinstance(event, RungStarted) and is_race:
        far = f"update {event.updates:,}" if event.updates is not None else "the end"
        return f"rung {event.rung + 1} of {len(whole.rungs)}: {len(event.candidates)} candidates train to {far}"
    if isinstance(event, RungDecided) and is_race and event.rung + 1 < len(whole.rungs):
        failed = f"; failed: {', '.join(event.failed)}" if event.failed else ""
        return f"rung {event.rung + 1}: on go {', '.join(event.kept) or 'none'}{failed}"
    return None


def _print_data(planned: Plan, messages: Messages) -> None:
    """Print what is in the data, once for all runs."""
    from dragoman.training.plan_text import describe_sides

    data = planned.data
    for name, audit in data.audits.items():
        messages.note(f"{name}: {audit.report(terminal_width(sys.stderr))}\n")
    if data.held_out:
        messages.note(data.held_out)
    for name, overlap in data.overlaps.items():
        if overlap.rows:
            messages.note(f"{name}: {overlap.report()}")
    messages.note("\n".join([*describe_sides(data), ""]))


def _print_estimate(whole: Sweep, spec: Grid, crew: Workers) -> None:
    """List the runs, and how long they may take together."""
    from dragoman.training.events import ENDLESS
    from dragoman.training.lines import format_duration
    from dragoman.training.sweep.run import estimate_updates, preview_candidate

    seconds = []
    limited = True
    for combination in whole.combinations:
        planned, trainer = preview_candidate(spec, combination, crew.threads)
        updates = trainer.last_update
        per_update = trainer.measure()
        limits = [trainer.config.max_time] if trainer.config.max_time is not None else []
        if updates < ENDLESS:
            share = estimate_updates(whole, updates) / len(whole.combinations) / len(spec.seed_numbers)
            limits.append(per_update * share)
        limited = limited and bool(limits)
        seconds.append(min(limits, default=0.0) * len(spec.seed_numbers))
        runs = ", ".join(job.name.rpartition("/")[2] for job in whole.runs(combination.name))
        parameters = f"{planned.system.model.parameters_count:,} parameters"
        length = f"at most {updates:,} updates, " if updates < ENDLESS else ""
        typer.echo(f"{combination.name}: {runs}; {parameters}, {length}{per_update * 1000:.0f} ms each")
    total = sum(seconds) / crew.count
    rungs = ", ".join(f"{rung.updates:,}" for rung in whole.rungs if rung.updates is not None)
    if len(whole.rungs) > 1:
        typer.echo(f"rungs at updates {rungs}; candidates left after each: {[rung.keep for rung in whole.rungs[:-1]]}")
    about = f"about {format_duration(total)}" if limited else "no estimate: the length of the runs is not limited"
    typer.echo(
        f"{len(whole.jobs)} runs, {crew.describe()}: {about}, validations not counted; less if dev scores stop "
        "improving\nnothing was written or trained"
    )
