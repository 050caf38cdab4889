"""Where modules take their random numbers from: torch's own stream, unless the thread was given one.

Rows of a batch may be dealt out among threads. If all drew from one stream, what each gets would depend on who comes
first, and a run could not be repeated.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_of_thread = threading.local()


def chance() -> torch.Generator | None:
    """The thread's own stream; None is torch's."""
    return getattr(_of_thread, "generator", None)


@contextmanager
def own_chance(seed: int) -> Iterator[None]:
    _of_thread.generator = torch.Generator().manual_seed(seed)
    try:
        yield
    finally:
        _of_thread.generator = None
