"""What a person sees while a run trains: a live display on a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.training.events import ENDLESS, Event, Started, Stepped, Stopped, Validated

if TYPE_CHECKING:
    from dragoman.planning import Plan
    from dragoman.training.trainer import Trainer


def duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def say(line: str = "") -> None:
    print(line, file=sys.stderr, flush=True)


def show_plan(plan: Plan, trainer: Trainer, folder: Path) -> None:
    """The truth about the data, what was chosen and why, and how long it may take."""
    data = plan.data
    for name, audit in data.audits.items():
        say(f"{name}: {audit.report()}")
        say()
    if data.held_out:
        say(data.held_out)
    for name, found in data.overlaps.items():
        if found.rows:
            say(f"{name}: {found.report()}")
    say(f"{len(data.train):,} rows to train on, {len(data.dev):,} for dev, {len(data.test):,} for test")
    say()
    for reason in plan.reasons:
        say(f"  {reason}")
    say(f"  {plan.system.model.parameters_count:,} parameters, on {trainer.device}")
    updates = trainer.last_update
    if updates < ENDLESS and not trainer.checkpoint.exists():
        expected = trainer.measure() * updates
        limit = trainer.config.max_time
        say(
            f"  time: about {duration(min(expected, limit or expected))} for {updates:,} updates at the speed just "
            "measured; less if the dev score stops improving"
        )
    say(f"  everything goes to {folder}; Ctrl-C stops and saves, the same command goes on")
    say()


class Plain:
    """One line a validation."""

    max_time: float | None = None  # as of ``Live``; lines tell no time left

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started):
            if event.update:
                say(f"going on from update {event.update:,}")
            say(
                f"{event.batches:,} batches an epoch; padding: {event.padding:.1%} of target positions, "
                f"{event.source_padding:.1%} of source positions"
            )
        elif isinstance(event, Stepped):
            self.last = event
        elif isinstance(event, Validated):
            say(_line(event, getattr(self, "last", None)))
        elif isinstance(event, Stopped):
            say(_end(event))

    def close(self) -> None:
        pass


class Live:
    """A progress bar with time left, speed, loss and dev score; validations stay above it as lines."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self.progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[status]}"),
            console=Console(stderr=True),
        )
        self.task: Any = None
        self.last: Stepped | None = None
        self.best = ""
        self.max_time: float | None = None  # seconds of training, over all sittings
        self.first: Stepped | None = None  # of this sitting: the speed is measured from there
        self.last_update = 0

    def __call__(self, event: Event) -> None:
        if isinstance(event, Started):
            if event.update:
                say(f"going on from update {event.update:,}")
            self.progress.start()
            self.last_update = event.last_update
            total = event.last_update if event.last_update < ENDLESS else None
            self.task = self.progress.add_task("training", total=total, completed=event.update, status="")
        elif isinstance(event, Stepped) and self.task is not None:
            self.last, self.first = event, self.first or event
            status = f"loss {event.loss:.3f} · {event.tokens_per_second:,.0f} tokens/s{self.best}{self._left(event)}"
            self.progress.update(
                self.task, completed=event.update, description=f"epoch {event.epoch + 1}", status=status
            )
        elif isinstance(event, Validated):
            if event.best:
                self.best = f" · best {event.metric} {_measured(event):.2f}"
            self.progress.console.print(_line(event, self.last), highlight=False)
        elif isinstance(event, Stopped):
            self.close()
            say(_end(event))

    def _left(self, event: Stepped) -> str:
        """By the speed of this sitting, or until the time that was asked for is over, whichever is sooner."""
        assert self.first is not None
        done = event.update - self.first.update
        left = [] if self.max_time is None else [max(0.0, self.max_time - event.seconds)]
        if done and self.last_update < ENDLESS:
            left.append((event.seconds - self.first.seconds) / done * (self.last_update - event.update))
        return f" · {duration(min(left))} left" if left else ""

    def close(self) -> None:
        self.progress.stop()


def _line(event: Validated, last: Stepped | None) -> str:
    speed = f"  {last.tokens_per_second:,.0f} tokens/s" if last else ""
    train = f"  train loss {last.loss:.3f}" if last else ""
    mark = "  best so far" if event.best else ""
    return (
        f"update {event.update:>6,}  {duration(event.seconds):>8}{train}  dev loss {event.loss:.3f}  "
        f"{event.metric} {_measured(event):.2f}{speed}{mark}"
    )


def _measured(event: Validated) -> float:
    """What the metric is; the score that validations are ranked by is its negative where lower is better."""
    return abs(event.score)


def _end(event: Stopped) -> str:
    if event.finished:
        return f"trained {event.update:,} updates in {duration(event.seconds)}: {event.reason}"
    return f"stopped at update {event.update:,}; all is saved, and the same command goes on from here"
