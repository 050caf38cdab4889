"""The displays of a training's progress on standard error: live, as plain lines, or none."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.errors import UserError
from dragoman.training.events import ENDLESS, Event, Started, Stepped, Stopped, Validated, Warned
from dragoman.training.forecast import expect_last_update, expect_seconds_left
from dragoman.training.lines import (
    end_line,
    fold,
    format_duration,
    metric_value,
    print_line,
    step_line,
    validation_line,
)
from dragoman.training.plan_text import print_plan

if TYPE_CHECKING:
    from rich.progress import TaskID

    from dragoman.training.checkpoints.progress import Progress
    from dragoman.training.plan import Plan
    from dragoman.training.trainer import Trainer

SILENCE = 60.0  # seconds after which lines say how far training is, if nothing else happened
NARROW = 80  # columns of a terminal below which the display shows less


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
    trainer: Trainer | None = None
    last_update: int = ENDLESS
    first_step: Stepped | None = None  # since the program started: the speed is measured from there

    def show_plan(self, plan: Plan, trainer: Trainer, folder: Path, *, every_setting: bool = False) -> None:
        """Show the plan before the first update."""

    def __call__(self, event: Event) -> None:
        """Show what the event says, if it deserves it."""

    def expected_last(self, step: Stepped | None) -> int | None:
        """Return the update at which training ends: the last one, or the one that ``max_time`` lets it get to.

        None: it cannot be told yet.
        """
        last = self.last_update if self.last_update < ENDLESS else None
        ending = 0.0
        if self.trainer is not None and step is not None:
            progress = self.trainer.progress
            ending = self.trainer.ending.seconds(progress.validation_seconds, step.seconds / max(progress.tokens, 1))
        return expect_last_update(last, self.max_time, self.first_step, step, ending)

    def close(self) -> None:
        """Remove what would stand in the way of other output."""


class TerminalProgress(ProgressDisplay):
    """What the displays on a terminal have in common: the plan comes first, as text."""

    _has_started = False  # a run that was finished before has nothing left to train

    def show_plan(self, plan: Plan, trainer: Trainer, folder: Path, *, every_setting: bool = False) -> None:
        """Print the plan, and where the run is saved."""
        self.max_time, self.trainer = plan.system.recipe.training.max_time, trainer
        print_plan(plan, trainer, every_setting=every_setting)
        print_line(
            fold(f"  everything is saved in {folder}; Ctrl-C stops, and the same command or call resumes") + "\n"
        )


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
            self._has_started = True
            _print_resumed(event)
            self._say(
                f"{event.batches:,} batches per epoch; padding: {event.padding:.1%} of target positions, "
                f"{event.source_padding:.1%} of source positions"
            )
            threading.Thread(target=self._watch, name="progress", daemon=True).start()
        elif isinstance(event, Stepped):
            self._step = event
            if self.every_report:
                self._say(step_line(event))
        elif isinstance(event, Validated):
            self._say(validation_line(event, self._step))
        elif isinstance(event, Warned):
            self._say(f"warning: {event.message}")
        elif isinstance(event, Stopped):
            self._after_training = event.finished
            self._say(end_line(event, has_trained=self._has_started))

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
        print_line(line)


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
        self._step: Stepped | None = None  # the last one
        self._best = ""

    def __call__(self, event: Event) -> None:
        """Update the display."""
        if isinstance(event, Started):
            self._has_started = True
            _print_resumed(event)
            self.progress.start()
            self.last_update = event.last_update
            total = self.expected_last(None)
            self._task = self.progress.add_task("training", total=total, completed=event.update, status="")
        elif isinstance(event, Stepped) and self._task is not None:
            self._step, self.first_step = event, self.first_step or event
            speed = "" if self.is_narrow else f" · {event.tokens_per_second:,.0f} tokens/s{self._best}"
            status = f"loss {event.loss:.3f}{speed}"
            self.progress.update(
                self._task,
                completed=event.update,
                total=self.expected_last(event),
                description=f"epoch {event.epoch + 1}",
                status=status + self._time_left(event, self.first_step),
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
            print_line(end_line(event, has_trained=self._has_started))

    def close(self) -> None:
        """Remove the bar."""
        self.progress.stop()

    def _time_left(self, step: Stepped, first: Stepped) -> str:
        """Return the time until the last update or until ``max_time``, whichever is sooner."""
        last = self.last_update if self.last_update < ENDLESS else None
        seconds = expect_seconds_left(last, self.max_time, first, step)
        return "" if seconds is None else f" · {format_duration(seconds)} left"


def _print_resumed(event: Started) -> None:
    if event.update:
        print_line(f"resuming from update {event.update:,}")
