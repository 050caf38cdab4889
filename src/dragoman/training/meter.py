"""Sums up what happens between two reports of training."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from dragoman.training.checkpoints.progress import Progress, Window
from dragoman.training.events import Stepped


class Meter:
    """Sums over the updates since the last report.

    The sums are part of the progress, so that a run that is stopped and resumed reports the same
    windows as one that is not. The speed is that of the updates alone: the time of validations and
    saves does not count.
    """

    def __init__(self, window: Window) -> None:
        self.window = window
        self._began = time.monotonic()

    def add(self, loss: float, smoothed_loss: float, tokens: int, norm: float) -> None:
        """Count an update: its summed losses, its tokens and the norm of its gradient."""
        window = self.window
        window.loss += loss
        window.smoothed_loss += smoothed_loss
        window.tokens += tokens
        window.norm += norm
        window.updates += 1

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave what happens in the ``with`` block out of the speed."""
        self._count_time()
        try:
            yield
        finally:
            self._began = time.monotonic()

    def _count_time(self) -> None:
        now = time.monotonic()
        self.window.seconds += now - self._began
        self._began = now

    def report(self, progress: Progress, learning_rate: float, gold_share: float) -> Stepped:
        """Return the means and begin a new window."""
        self._count_time()
        window = self.window
        self.window = progress.window = Window()
        return Stepped(
            progress.update,
            progress.epoch,
            window.loss / max(window.tokens, 1),
            learning_rate,
            window.norm / max(window.updates, 1),
            window.tokens / max(window.seconds, 1e-9),
            progress.seconds,
            gold_share,
            window.smoothed_loss / max(window.tokens, 1),
        )
