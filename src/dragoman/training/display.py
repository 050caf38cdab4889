"""What training shows on standard error: the plan, then the progress, live or as plain lines."""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.data.examples import count_sources
from dragoman.errors import UserError
from dragoman.training.events import ENDLESS, Event, Started, Stepped, Stopped, Validated, Warned

if TYPE_CHECKING:
    from rich.progress import TaskID

    from dragoman.data.splits import Data
    from dragoman.training.checkpoints.progress import Progress
    from dragoman.training.forecast import Forecast
    from dragoman.training.plan import Plan
    from dragoman.training.trainer import Trainer

SILENCE = 60.0  # seconds after which lines say how far training is, if nothing else happened
UNIT = re.compile(r"(\d) (s|min|h|MB|GB|%)\b")
NARROW = 80  # columns of a terminal below which the display shows less


def print_plan(plan: Plan, trainer: Trainer, *, every_setting: bool = False) -> None:
    """Print the audit, what was chosen and why, and how long training may take."""
    for line in describe_plan(plan, trainer, every_setting=every_setting):
        _print(line if "\n" in line else fold(line))  # the audit is a table, which has its own lines


def describe_plan(plan: Plan, trainer: Trainer, *, every_setting: bool = False) -> Iterator[str]:
    """Yield the lines of ``print_plan``."""
    data = plan.data
    for name, audit in data.audits.items():
        yield f"{name}: {audit.report()}\n"
    if data.held_out:
        yield data.held_out
    for name, overlap in data.overlaps.items():
        if overlap.rows:
            yield f"{name}: {overlap.report()}"
    yield from describe_sides(data)
    yield ""
    for reason in plan.reasons:
        yield f"  {reason}"
    yield f"  {plan.system.model.parameters_count:,} parameters, on {trainer.device}"
    if workers := trainer.workers.describe():
        yield f"  {workers}"
    if not trainer.progress.update:
        for line in describe_time(trainer.forecast()):
            yield f"  {line}"
    if every_setting:
        yield ""
        for setting in flatten_settings(plan.system.recipe.dump()):
            yield f"  {setting}"


def describe_sides(data: Data) -> list[str]:
    """Return how many rows are on each side of the data, and how many distinct sources dev and test have."""
    counts = []
    for name, rows in (("dev", data.dev), ("test", data.test)):
        sources = count_sources(rows)
        distinct = f" ({sources:,} distinct sources)" if sources < len(rows) else ""
        counts.append(f"{len(rows):,} for {name}{distinct}")
    lines = [f"{len(data.train):,} rows to train on, {', '.join(counts)}"]
    return lines + ["rows of dev and test with the same source are measured together"] * ("(" in lines[0])


def describe_time(forecast: Forecast) -> list[str]:
    """Return how long training will take, and how far a time limit lets it get."""
    lines = []
    if forecast.updates < ENDLESS:
        lines.append(
            f"time: about {format_duration(forecast.training)} for {forecast.updates:,} updates at the speed just "
            "measured, and validations; less if the dev score stops improving"
        )
    if forecast.limit is not None:
        within = forecast.updates_within_limit
        far = f"stops after about {within:,} updates" if within < forecast.updates else "is enough for all of them"
        lines.append(
            f"limit: --max-time {forecast.limit:g} {far}; about {format_duration(forecast.kept)} of it are kept for "
            "the last validation and the evaluation"
        )
        if forecast.kept < forecast.ending:
            more = format_duration(forecast.ending - forecast.kept)
            lines.append(f"       these may take about {more} longer than the limit allows")
        lines.append("       not part of the limit: reading the data before the first update, and the report page")
    return lines


def flatten_settings(settings: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield all settings as they are written after ``--set``: path = value."""
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            yield from flatten_settings(value, f"{above}{name}.")
        else:
            yield f"{above}{name} = {json.dumps(value, ensure_ascii=False)}"


def choose_progress(quiet: bool = False, verbose: bool = False) -> ProgressDisplay:
    """Return the display that suits standard error, or one that shows nothing or more."""
    if quiet:
        return ProgressDisplay()
    return LiveProgress() if sys.stderr.isatty() else PlainProgress(every_report=verbose)


def library_progress(quiet: bool = False, verbose: bool = False) -> ProgressDisplay:
    """Return the display of a call from Python: on a terminal and in a notebook, nothing elsewhere."""
    if quiet and verbose:
        raise UserError("quiet and verbose contradict each other; give one of them")
    if not quiet and is_notebook():
        from dragoman.training.notebook import NotebookProgress

        return NotebookProgress()
    return choose_progress(not is_shown(quiet, verbose), verbose)


def is_shown(quiet: bool, verbose: bool) -> bool:
    """Tell whether a call from Python shows its progress: on a terminal, in a notebook, or on request."""
    return not quiet and (verbose or sys.stderr.isatty() or is_notebook())


def is_notebook() -> bool:
    """Tell whether the program runs in a notebook, which shows HTML. IPython on a terminal has no kernel."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


class ProgressDisplay:
    """Shows nothing; the displays that show something derive from it."""

    max_time: float | None = None  # seconds of training, earlier sessions of the run included

    def show_plan(self, plan: Plan, trainer: Trainer, folder: Path, *, every_setting: bool = False) -> None:
        """Show the plan before the first update."""

    def __call__(self, event: Event) -> None:
        """Show what the event says, if it deserves it."""

    def close(self) -> None:
        """Remove what would stand in the way of other output."""


class TerminalProgress(ProgressDisplay):
    """What the displays on a terminal have in common: the plan comes first, as text."""

    def show_plan(self, plan: Plan, trainer: Trainer, folder: Path, *, every_setting: bool = False) -> None:
        """Print the plan, and where the run is saved."""
        self.max_time = plan.system.recipe.training.max_time
        print_plan(plan, trainer, every_setting=every_setting)
        _print(fold(f"  everything is saved in {folder}; Ctrl-C stops, and the same command or call resumes") + "\n")


class PlainProgress(TerminalProgress):
    """Prints one line for each validation and, on request, one for each report of training.

    It says something at least once a minute: where nothing else happens, how far training is.
    """

    def __init__(self, every_report: bool = False) -> None:
        self.every_report = every_report
        self._step: Stepped | None = None  # the last one
        self._progress: Progress | None = None  # of the trainer, which counts every update
        self._after_training = False
        self._said = time.monotonic()  # when the last line was printed
        self._closed = threading.Event()

    def show_plan(self, plan: Plan, trainer: Trainer, folder: Path, *, every_setting: bool = False) -> None:
        super().show_plan(plan, trainer, folder, every_setting=every_setting)
        self._progress = trainer.progress

    def __call__(self, event: Event) -> None:
        """Print a line about the event, if it deserves one."""
        if isinstance(event, Started):
            _print_resumed(event)
            self._say(
                f"{event.batches:,} batches per epoch; padding: {event.padding:.1%} of target positions, "
                f"{event.source_padding:.1%} of source positions"
            )
            threading.Thread(target=self._watch, name="progress", daemon=True).start()
        elif isinstance(event, Stepped):
            self._step = event
            if self.every_report:
                self._say(_step_line(event))
        elif isinstance(event, Validated):
            self._say(validation_line(event, self._step))
        elif isinstance(event, Warned):
            self._say(f"warning: {event.message}")
        elif isinstance(event, Stopped):
            self._after_training = event.finished
            self._say(end_line(event))

    def speak_up(self, now: float) -> None:
        """Say how far training is, if nothing was said for a minute before ``now``."""
        if now - self._said < SILENCE:
            return
        update = self._progress.update if self._progress is not None else 0
        loss = "" if self._step is None else f"  train loss {self._step.loss:.3f}"
        seconds = 0.0 if self._progress is None else self._progress.seconds
        doing = "evaluating the final weights" if self._after_training else f"update {update:>6,}"
        self._say(f"{doing}  {format_duration(seconds):>8}{loss}", now)

    def close(self) -> None:
        """Stop watching the time."""
        self._closed.set()

    def _watch(self) -> None:
        while not self._closed.wait(SILENCE / 10):
            self.speak_up(time.monotonic())

    def _say(self, line: str, now: float | None = None) -> None:
        self._said = time.monotonic() if now is None else now
        _print(line)


class LiveProgress(TerminalProgress):
    """Shows a bar with time left, speed, loss and best score; validations are lines above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as LiveBar

        console = Console(stderr=True)
        self.is_narrow = console.width < NARROW  # then there is room for the numbers that matter most
        self.progress = LiveBar(
            TextColumn("[bold]{task.description}"),
            *([] if self.is_narrow else [BarColumn()]),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            console=console,
        )
        self._task: TaskID | None = None
        self._first_step: Stepped | None = None  # since the program started: the speed is measured from there
        self._step: Stepped | None = None  # the last one
        self._last_update = 0
        self._best = ""

    def __call__(self, event: Event) -> None:
        """Update the display."""
        if isinstance(event, Started):
            _print_resumed(event)
            self.progress.start()
            self._last_update = event.last_update
            total = event.last_update if event.last_update < ENDLESS else None
            self._task = self.progress.add_task("training", total=total, completed=event.update, status="")
        elif isinstance(event, Stepped) and self._task is not None:
            self._step, self._first_step = event, self._first_step or event
            speed = "" if self.is_narrow else f" · {event.tokens_per_second:,.0f} tokens/s{self._best}"
            status = f"loss {event.loss:.3f}{speed}"
            self.progress.update(
                self._task,
                completed=event.update,
                description=f"epoch {event.epoch + 1}",
                status=status + self._time_left(event, self._first_step),
            )
        elif isinstance(event, Validated):
            if event.best:
                self._best = f" · best {event.metric} {metric_value(event):.2f}"
            line = fold(validation_line(event, self._step), self.progress.console.width, at="  ")
            self.progress.console.print(line, highlight=False)
        elif isinstance(event, Warned):
            self.progress.console.print(f"warning: {event.message}", highlight=False, markup=False, soft_wrap=True)
        elif isinstance(event, Stopped):
            self.close()
            _print(end_line(event))

    def close(self) -> None:
        """Remove the bar."""
        self.progress.stop()

    def _time_left(self, step: Stepped, first: Stepped) -> str:
        """Return the time until the last update or until ``max_time``, whichever is sooner."""
        updates = step.update - first.update
        seconds = [] if self.max_time is None else [max(0.0, self.max_time - step.seconds)]
        if updates and self._last_update < ENDLESS:
            seconds.append((step.seconds - first.seconds) / updates * (self._last_update - step.update))
        return f" · {format_duration(min(seconds))} left" if seconds else ""


def format_duration(seconds: float) -> str:
    """Return a duration in seconds, minutes or hours, whichever reads best."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def fold(line: str, width: int | None = None, at: str = " ") -> str:
    """Return a line as several that fit the terminal, or ``width``; those after the first are indented.

    ``at``: what stands where a line may be broken. Without a terminal nothing is folded.
    """
    if width is None:
        width = shutil.get_terminal_size().columns if sys.stderr.isatty() else len(line)
    if len(line) <= width:
        return line
    indent = line[: len(line) - len(line.lstrip())]
    folded, rest = [], UNIT.sub("\\1\u00a0\\2", line.lstrip())  # a number stays with its unit
    while len(indent) + len(rest) > width:
        end = rest.rfind(at, 0, width - len(indent) + 1)
        if end <= 0:
            break
        folded.append(indent + rest[:end].rstrip())
        rest = rest[end:].lstrip()
        if len(folded) == 1:
            indent += "    "
    return "\n".join([*folded, indent + rest]).replace("\u00a0", " ")


def _print(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _print_resumed(event: Started) -> None:
    if event.update:
        _print(f"resuming from update {event.update:,}")


def _step_line(event: Stepped) -> str:
    return (
        f"update {event.update:>6,}  {format_duration(event.seconds):>8}  train loss {event.loss:.3f}  "
        f"learning rate {event.learning_rate:.3g}  gradient norm {event.gradient_norm:.3g}  "
        f"{event.tokens_per_second:,.0f} tokens/s"
    )


def validation_line(event: Validated, step: Stepped | None) -> str:
    loss, speed = (f"  train loss {step.loss:.3f}", f"  {step.tokens_per_second:,.0f} tokens/s") if step else ("", "")
    mark = "  best so far" if event.best else ""
    return (
        f"update {event.update:>6,}  {format_duration(event.seconds):>8}{loss}  dev loss {event.loss:.3f}  "
        f"{event.metric} {metric_value(event):.2f}{speed}{mark}"
    )


def metric_value(event: Validated) -> float:
    """Return the metric itself; the score is its negative where lower is better."""
    return abs(event.score)


def end_line(event: Stopped) -> str:
    if event.finished:
        return f"trained {event.update:,} updates in {format_duration(event.seconds)}: {event.reason}"
    if event.diverged:
        return f"stopped at update {event.update:,}: training has diverged"
    return f"stopped at update {event.update:,}; everything is saved, and the same command resumes from here"
