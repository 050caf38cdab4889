"""A small cache of results that several threads ask for."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, TypeVar

from dragoman.serving.queue import UNLIMITED, Job, JobEnded

Value = TypeVar("Value")


class ResultCache:
    """The most recently used results.

    A result is computed once, however many threads ask for it at the same time.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._futures: OrderedDict[Hashable, Future[Any]] = OrderedDict()  # least recently used first
        self._lock = threading.Lock()  # of the dictionary; results are computed outside it

    def get(self, key: Hashable, compute: Callable[[], Value], job: Job = UNLIMITED) -> Value:
        """Return the result with this key, computed if it is not in the cache.

        An error is raised and not stored. If ``job`` has to wait for another one that computes the
        result, it lets others compute meanwhile; if that one ends without a result, it computes it.
        """
        while True:
            with self._lock:
                is_new = key not in self._futures
                future: Future[Value] = self._futures.setdefault(key, Future())
                self._futures.move_to_end(key)
                while len(self._futures) > self._size:
                    self._futures.popitem(last=False)
            if is_new:
                return self._compute(key, future, compute)
            if future.done() and future.exception() is None:
                return future.result()
            try:
                return job.wait_for(future)
            except JobEnded:
                job.checkpoint()  # raises if it was this job that had to end

    def _compute(self, key: Hashable, future: Future[Value], compute: Callable[[], Value]) -> Value:
        try:
            result = compute()
        except BaseException as error:
            with self._lock:
                if self._futures.get(key) is future:
                    del self._futures[key]
            future.set_exception(error)
            raise
        future.set_result(result)
        return result
