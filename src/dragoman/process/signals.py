"""Stop a long command when it is asked to."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class StopRequest:
    """Tells whether a signal asked the command to stop.

    While ``waits`` is True, the first signal only leaves this message, so that the command can save
    what it has in memory. At any other time, and at the second signal, ``KeyboardInterrupt`` is
    raised at once.
    """

    def __init__(self, waits: bool) -> None:
        self.requested = False
        self.waits = waits

    def __call__(self) -> bool:
        """Return whether the command is asked to stop."""
        return self.requested

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Receive a signal."""
        if self.requested or not self.waits:
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def stop_on_signal(*numbers: int, waits: bool = True) -> Iterator[StopRequest]:
    """Receive these signals; by default, Ctrl-C and SIGTERM. Only the main thread of a program can do this."""
    stop = StopRequest(waits)
    previous = {number: signal.signal(number, stop.handle) for number in numbers or (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
