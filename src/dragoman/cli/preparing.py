"""What is shown on standard error while a large corpus is prepared."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

EVERY = 10.0  # seconds between two lines where there is no terminal


class PreparationDisplay:
    """Shows how many rows are done: as a bar on a terminal, else as a line from time to time.

    Nothing is shown for data that is prepared at once, in memory.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self._bar: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._began: dict[str, float] = {}
        self._shown = 0.0

    def __call__(self, stage: str, done: int, total: int | None) -> None:
        """Show the progress of a stage."""
        if self.quiet:
            return
        if sys.stderr.isatty():
            self._draw(stage, done, total)
        else:
            self._print(stage, done, total)

    def close(self) -> None:
        """Remove the bar."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _draw(self, stage: str, done: int, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        if self._bar is None:
            columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rows]}")
            self._bar = Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
            self._bar.start()
        if stage not in self._tasks:
            self._tasks[stage] = self._bar.add_task(stage, total=total, rows="")
        self._bar.update(self._tasks[stage], completed=done, total=total, rows=_count(done, total))

    def _print(self, stage: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        began = self._began.setdefault(stage, now)
        if now - self._shown < EVERY and done != total:
            return
        self._shown = now
        speed = f", {done / (now - began):,.0f} a second" if now - began > 1 else ""
        print(f"{stage}: {_count(done, total)}{speed}", file=sys.stderr, flush=True)


def _count(done: int, total: int | None) -> str:
    return f"{done:,} rows" if total is None else f"{done:,} of {total:,} rows"
