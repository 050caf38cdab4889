"""Print and read the reports of the contenders that run in this package: one line of JSON every few updates."""

from __future__ import annotations

import json
import time

KEY = "tokens_per_second"


class Meter:
    """Print tokens per second after every ``every`` updates."""

    def __init__(self, every: int) -> None:
        self.every, self.updates, self.tokens, self.began = every, 0, 0, time.perf_counter()

    def update(self, tokens: int) -> None:
        """Count an update of so many real target tokens, end symbols included."""
        self.updates, self.tokens = self.updates + 1, self.tokens + tokens
        if self.updates % self.every == 0:
            now = time.perf_counter()
            print(json.dumps({KEY: self.tokens / (now - self.began)}), flush=True)
            self.tokens, self.began = 0, now


def read_meter(line: str) -> float | None:
    """Return the rate of a report, or None for any other line."""
    return float(json.loads(line)[KEY]) if line.startswith(f'{{"{KEY}"') else None
