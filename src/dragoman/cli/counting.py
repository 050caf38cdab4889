"""A count of what is done, on standard error, for commands that take long on big files."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

EVERY = 0.1  # seconds between two updates of the display
PATIENCE = 1.0  # seconds before there is a display at all: what is done sooner needs none


class LiveCount:
    """Shows how many of something are done, while it is open. Call it with the number so far.

    It shows nothing if it is not ``shown``, and nothing in the first second.
    """

    def __init__(self, what: str, shown: bool) -> None:
        """``what`` is counted, in the plural."""
        self.what = what
        self.shown = shown
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._next = time.monotonic() + PATIENCE  # when the display may change

    def __call__(self, done: int) -> None:
        """Show that so many are done."""
        if not self.shown or (now := time.monotonic()) < self._next:
            return
        self._next = now + EVERY
        if self._progress is None:
            self._start()
        assert self._progress is not None and self._task is not None
        self._progress.update(self._task, completed=done, description=f"{done:,} {self.what}")

    def __enter__(self) -> LiveCount:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the display for good."""
        self.shown = False
        if self._progress is not None:
            self._progress.stop()

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
        console = Console(stderr=True)
        self._progress = Progress(*columns, console=console, transient=True, redirect_stdout=False)
        self._progress.start()
        self._task = self._progress.add_task("", total=None)


def is_terminal(stream: str) -> bool:
    """Tell whether ``stdin``, ``stdout`` or ``stderr`` is a terminal; one that is closed is none."""
    file = getattr(sys, stream)
    return file is not None and file.isatty()
