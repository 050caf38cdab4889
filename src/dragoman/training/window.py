"""What is summed up between two reports of training."""

from __future__ import annotations

import time

from dragoman.training.checkpoint import Progress
from dragoman.training.events import Stepped


class Window:
    """Sums since the last report."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.loss, self.tokens, self.norm, self.updates, self.began = 0.0, 0, 0.0, 0, time.monotonic()

    def add(self, loss: float, tokens: int, norm: float) -> None:
        self.loss, self.tokens, self.norm, self.updates = (
            self.loss + loss,
            self.tokens + tokens,
            self.norm + norm,
            self.updates + 1,
        )

    def report(self, progress: Progress, rate: float, gold_share: float) -> Stepped:
        elapsed = max(time.monotonic() - self.began, 1e-9)
        event = Stepped(
            progress.update, progress.epoch, self.loss / max(self.tokens, 1), rate, self.norm / max(self.updates, 1),
            self.tokens / elapsed, progress.seconds, gold_share,
        )  # fmt: skip
        self.restart()
        return event
