"""Which random generator modules draw from: torch's own, unless the thread has one of its own.

Training may split the rows of a batch among threads. If all of them drew from one generator, the
numbers of each would depend on which thread comes first, and a run could not be repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class _OfThread(threading.local):
    generator: torch.Generator | None = None


_of_thread = _OfThread()


def current_generator() -> torch.Generator | None:
    """Return the generator of this thread; None is torch's."""
    return _of_thread.generator


@contextmanager
def thread_generator(seed: int, device: torch.device | str = "cpu") -> Iterator[None]:
    """Give this thread a generator of its own, inside a ``with`` block.

    ``device``: where the numbers are drawn.
    """
    _of_thread.generator = torch.Generator(device).manual_seed(seed)
    try:
        yield
    finally:
        _of_thread.generator = None
