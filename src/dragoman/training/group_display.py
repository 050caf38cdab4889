"""What is shown while several runs train side by side: a line for each run, live or as it happens."""

from __future__ import annotations

import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.runs.history import METRICS, read_metrics
from dragoman.training.display import NARROW
from dragoman.training.events import ENDLESS, Event, Started, Stepped, Stopped, Validated
from dragoman.training.forecast import Ending, expect_last_update, expect_seconds_left
from dragoman.training.lines import format_duration
from dragoman.training.pool import JobEnded, JobStarted, PoolEvent, Waiting

if TYPE_CHECKING:
    from rich.progress import TaskID

    from dragoman.training.worker import Job

KINDS: dict[str, Any] = {kind.__name__.lower(): kind for kind in (Started, Stepped, Validated, Stopped)}
LABEL = 18  # characters of the name of a run on a narrow terminal
QUIET_SECONDS = 60.0  # the longest that lines say nothing about a run
LOOK_SECONDS = 0.5  # between two looks at the files of the runs, while nothing else happens


class Follower:
    """Reads what a run reports, from the file that it writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        tail = read_metrics(folder)
        self._offset = tail.offset
        self._validated = max((event["update"] for event in tail.events if event["event"] == "validated"), default=0)

    def poll(self) -> list[Event]:
        """Return the events since the last call. No validation is returned twice."""
        path = self.folder / METRICS
        if not path.exists() or path.stat().st_size == self._offset:
            return []
        tail = read_metrics(self.folder, self._offset)
        self._offset = tail.offset
        events: list[Event] = []
        for plain in tail.events:
            kind = KINDS.get(plain.get("event", ""))
            if kind is None:
                continue
            event = kind(**{field.name: plain[field.name] for field in fields(kind) if field.name in plain})
            if isinstance(event, Validated):
                if event.update <= self._validated:
                    continue
                self._validated = event.update
            events.append(event)
        return events


class Pace:
    """How far a run is and how far it will get, from what it reports."""

    def __init__(self, started: Started) -> None:
        self.last = started.last_update if started.last_update < ENDLESS else None
        self.limit = started.max_time
        self.ending = Ending(started.ending_tokens, started.ending_validations)
        self.first: Stepped | None = None  # since the run started or was resumed
        self.step: Stepped | None = None  # the latest
        self.validation = 0.0  # seconds that the last one took

    def follow(self, event: Event) -> None:
        """Take note of a report."""
        if isinstance(event, Stepped):
            self.first, self.step = self.first or event, event
        elif isinstance(event, Validated) and self.step is not None and self.step.update == event.update:
            self.validation = max(0.0, event.seconds - self.step.seconds)

    def expected_last(self) -> int | None:
        """Return the update at which the run will end: its last one, or the one that its time limit lets it get to."""
        ending = 0.0
        if self.step is not None:
            ending = self.ending.seconds(self.validation, 1.0 / max(self.step.tokens_per_second, 1e-9))
        return expect_last_update(self.last, self.limit, self.first, self.step, ending)

    def time_left(self) -> str:
        """Return the time that training will still take, in words; nothing if it cannot be told."""
        if self.first is None or self.step is None:
            return ""
        seconds = expect_seconds_left(self.last, self.limit, self.first, self.step)
        return "" if seconds is None else f" · {format_duration(seconds)} left"


class GroupDisplay:
    """Shows nothing; the displays that show something derive from it."""

    def __init__(self) -> None:
        self.followers: dict[str, Follower] = {}
        self._looked = 0.0  # when the files were last read

    def __call__(self, event: PoolEvent) -> None:
        """Show what has happened, and how far the runs are."""
        if isinstance(event, JobStarted):
            self.followers[event.job.name] = Follower(Path(event.job.out))
            self.started(event.job)
        if not isinstance(event, Waiting) or time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            for name, follower in self.followers.items():
                for each in follower.poll():
                    self.show(name, each)
        if isinstance(event, JobEnded):
            self.followers.pop(event.job.name, None)
            self.ended(event)

    def started(self, job: Job) -> None:
        """Show that a run has started."""

    def show(self, name: str, event: Event) -> None:
        """Show what a run reports."""

    def ended(self, event: JobEnded) -> None:
        """Show that a run has ended."""

    def say(self, sentence: str) -> None:
        """Print a sentence between the lines of the runs."""

    def close(self) -> None:
        """Remove what would stand in the way of other output."""


class GroupLines(GroupDisplay):
    """Prints lines that begin with the name of the run: one for each validation, or each minute."""

    def __init__(self) -> None:
        super().__init__()
        self._printed: dict[str, float] = {}  # when each run last had a line

    def started(self, job: Job) -> None:
        """Print that a run has started."""
        self._print(job.name, "started")

    def show(self, name: str, event: Event) -> None:
        """Print a line about the event, if it deserves one."""
        if isinstance(event, Started) and event.update:
            self._print(name, f"resuming from update {event.update:,}")
        elif isinstance(event, Stepped) and time.monotonic() - self._printed.get(name, 0.0) > QUIET_SECONDS:
            self._print(name, f"update {event.update:,}  {format_duration(event.seconds)}  loss {event.loss:.3f}")
        elif isinstance(event, Validated):
            self._print(name, describe_validation(event))
        elif isinstance(event, Stopped):
            self._print(name, describe_stop(event))

    def ended(self, event: JobEnded) -> None:
        """Print how a run ended, if it went wrong."""
        if not event.is_done and not event.is_interrupted:
            self._print(event.job.name, f"failed: {event.describe()}")

    def say(self, sentence: str) -> None:
        """Print a sentence."""
        print(sentence, file=sys.stderr, flush=True)

    def _print(self, name: str, text: str) -> None:
        self._printed[name] = time.monotonic()
        self.say(f"{name}: {text}")


class GroupBars(GroupDisplay):
    """Shows a bar for each run that trains; what is done becomes a line above them."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        console = Console(stderr=True)
        self.is_narrow = console.width < NARROW  # then the numbers need the room of the bars
        self.progress = Progress(
            TextColumn("[bold]{task.description}"),
            *([] if self.is_narrow else [BarColumn(bar_width=20)]),
            TextColumn("{task.fields[status]}"),
            console=console,
        )
        self._tasks: dict[str, TaskID] = {}
        self._best: dict[str, str] = {}
        self._paces: dict[str, Pace] = {}

    def started(self, job: Job) -> None:
        """Add a bar."""
        self.progress.start()
        self._tasks[job.name] = self.progress.add_task(self._label(job.name), total=None, status="reading the data")
        self._best[job.name] = ""

    def show(self, name: str, event: Event) -> None:
        """Move the bar of a run."""
        task = self._tasks[name]
        pace = self._paces.get(name)
        if pace is not None:
            pace.follow(event)
        if isinstance(event, Started):
            pace = self._paces[name] = Pace(event)
            total = pace.expected_last()
            self.progress.update(task, total=total, completed=event.update, status=f"update {event.update:,}")
        elif isinstance(event, Stepped):
            last = None if pace is None else pace.expected_last()
            left = "" if pace is None or self.is_narrow else pace.time_left()
            of_all = "" if last is None else f" of {last:,}"
            status = f"update {event.update:,}{of_all} · loss {event.loss:.3f}{self._best[name]}{left}"
            self.progress.update(task, completed=event.update, total=last, status=status)
        elif isinstance(event, Validated) and event.best:
            metric = "" if self.is_narrow else f" {event.metric}"
            self._best[name] = f" · best{metric} {abs(event.score):.2f}"
        elif isinstance(event, Stopped):
            self.progress.update(task, completed=event.update, status="evaluating" if event.finished else "saving")
            self.say(f"{name}: {describe_stop(event)}")

    def ended(self, event: JobEnded) -> None:
        """Remove the bar of a run."""
        self.progress.remove_task(self._tasks.pop(event.job.name))
        if not event.is_done and not event.is_interrupted:
            self.say(f"{event.job.name}: failed: {event.describe()}")

    def say(self, sentence: str) -> None:
        """Print a sentence above the bars."""
        self.progress.console.print(sentence, highlight=False, markup=False, soft_wrap=True)

    def _label(self, name: str) -> str:
        """Return the name of a run; on a narrow terminal its end, which tells the seeds apart."""
        return name if not self.is_narrow or len(name) <= LABEL else f"…{name[1 - LABEL :]}"

    def close(self) -> None:
        """Remove the bars."""
        self.progress.stop()


def choose_display(quiet: bool = False) -> GroupDisplay:
    """Return the display that suits standard error."""
    if quiet:
        return GroupDisplay()
    return GroupBars() if sys.stderr.isatty() else GroupLines()


def describe_validation(event: Validated) -> str:
    """Describe a validation in one line."""
    best = "  best so far" if event.best else ""
    when = f"update {event.update:>6,}  {format_duration(event.seconds):>8}"
    return f"{when}  dev loss {event.loss:.3f}  {event.metric} {abs(event.score):.2f}{best}"


def describe_stop(event: Stopped) -> str:
    """Say in a sentence why training stopped."""
    if event.finished:
        return f"trained {event.update:,} updates in {format_duration(event.seconds)}: {event.reason}"
    return f"{event.reason} at update {event.update:,}; everything is saved"
