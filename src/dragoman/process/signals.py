"""Stop a long command when it is asked to."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_signal(*numbers: int) -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether one of these signals asked to stop; by default, Ctrl-C or SIGTERM.

    A second signal raises ``KeyboardInterrupt`` at once. Only the main thread of a program can do this.
    """
    requested = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal requested
        if requested:
            raise KeyboardInterrupt
        requested = True

    previous = {number: signal.signal(number, handle) for number in numbers or (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: requested
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
