"""Sums up what happens between two reports of training."""

from __future__ import annotations

import time

from dragoman.training.checkpoints.progress import Progress
from dragoman.training.events import Stepped


class Meter:
    """Sums over the updates since the last report."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.loss, self.tokens, self.norm, self.updates = 0.0, 0, 0.0, 0
        self.began = time.monotonic()

    def add(self, loss: float, tokens: int, norm: float) -> None:
        """Count an update: its summed loss, its tokens and the norm of its gradient."""
        self.loss += loss
        self.tokens += tokens
        self.norm += norm
        self.updates += 1

    def report(self, progress: Progress, learning_rate: float, gold_share: float) -> Stepped:
        """Return the means and begin anew."""
        elapsed = max(time.monotonic() - self.began, 1e-9)
        event = Stepped(
            progress.update,
            progress.epoch,
            self.loss / max(self.tokens, 1),
            learning_rate,
            self.norm / max(self.updates, 1),
            self.tokens / elapsed,
            progress.seconds,
            gold_share,
        )
        self.restart()
        return event
