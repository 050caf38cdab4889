"""What the tests of the serving room share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dragoman.serving.limits import Limits
from dragoman.serving.queue import Queue


@pytest.fixture
def run_async() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    """Run a coroutine in a thread of its own: browser tests may have left an event loop in this one."""

    def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(asyncio.run, coroutine).result()

    return run


@pytest.fixture
def make_queue() -> Iterator[Callable[..., Queue]]:
    """``make_queue(slots=2)`` returns a queue with these limits, which is closed after the test."""
    queues: list[Queue] = []

    def make(**limits: Any) -> Queue:
        queues.append(Queue(Limits(**limits)))
        return queues[-1]

    yield make
    for queue in queues:
        queue.close()
