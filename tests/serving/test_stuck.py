"""A worker that does not end a batch which nobody waits for: it is killed, though it holds Python's lock."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

import pytest

from dragoman.inference.workers import can_fork
from dragoman.serving import workers
from dragoman.serving.batching import Batcher, Question
from dragoman.serving.compute import Item, Task
from dragoman.serving.limits import SERVER


@pytest.mark.skipif(not can_fork("cpu"), reason="workers are threads here")
def test_a_stuck_worker_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(_models: Any, _limits: Any, task: Task, items: list[Item], *_: Any) -> list[bytes]:
        if task.options == "hang":
            ctypes.PyDLL(None).sleep(600)  # as a library that builds something large: no other thread can run
        return [b"answer"] * len(items)

    monkeypatch.setattr(workers, "compute", hang)
    monkeypatch.setattr(workers, "STUCK_SECONDS", 1.0)
    monkeypatch.setattr(workers, "POLL_SECONDS", 0.1)
    restarts: list[float] = []
    batcher = Batcher(SERVER, 2)
    pool = workers.Pool(None, batcher, SERVER, forks=True, on_restart=lambda: restarts.append(time.monotonic()))  # type: ignore[arg-type]
    pool.start()
    try:
        stuck = [batcher.submit(Question(Task("predict", "run", "hang"), [Item("a")]), seconds=1) for _ in range(2)]
        until = time.monotonic() + 60
        while any(job.began is None for job in stuck):
            assert time.monotonic() < until
            time.sleep(0.02)
        before = pool.processes
        for job in stuck:
            job.cancel()
        fine = batcher.submit(Question(Task("predict", "run"), [Item("b")]), seconds=60)
        assert fine.future.result(60) == [b"answer"]
        while not batcher.is_idle:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert restarts
        for number in set(before) - set(pool.processes):
            with pytest.raises(ProcessLookupError):
                os.kill(number, 0)
    finally:
        pool.close(5.0)
