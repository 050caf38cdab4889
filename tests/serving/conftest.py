"""What the tests of the serving room share."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

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


class Served(NamedTuple):
    """A server in a thread of this process, with its workers, and a client of it."""

    http: Any  # an httpx.Client
    system: Any
    batcher: Any
    log: list[dict[str, Any]]
    draining: Any


@pytest.fixture
def serve_here(tiny_run: Any) -> Iterator[Callable[..., Served]]:
    """``serve_here(limits=…, keys=…)`` serves the tiny run, or other folders, in this process."""
    for name in ("fastapi", "uvicorn", "python_multipart", "prometheus_client", "httpx"):
        pytest.importorskip(name)
    import httpx
    import uvicorn

    from dragoman.inference.system import System
    from dragoman.serving.application import Draining, create_application
    from dragoman.serving.batching import Batcher
    from dragoman.serving.connections import configure
    from dragoman.serving.continuous import find_continuous
    from dragoman.serving.limits import SERVER
    from dragoman.serving.metrics import Metrics
    from dragoman.serving.models import Model, Models
    from dragoman.serving.workers import Pool

    closing: list[Callable[[], None]] = []

    def start(runs: dict[str, Path] | None = None, limits: Limits = SERVER, workers: int = 1, **options: Any) -> Served:
        given = {"run": tiny_run.folder} if runs is None else runs
        languages = options.pop("languages", {"run": ("de", "en")})
        models = Models([Model(name, System.load(run, "cpu"), languages.get(name)) for name, run in given.items()])
        metrics, draining, log = Metrics(), Draining(), []
        batcher = Batcher(limits, workers, metrics.count_batch, find_continuous(models))
        metrics.watch(batcher)
        pool = Pool(models, batcher, limits, forks=False)
        app = create_application(
            models, batcher, limits=limits, metrics=metrics, hosts=("127.0.0.1",), draining=draining,
            write_log=lambda line: log.append(json.loads(line)), **options,
        )  # fmt: skip
        pool.start()
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server = uvicorn.Server(configure(app, limits))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        http = httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=60.0)

        def close() -> None:
            http.close()
            server.should_exit = True
            thread.join(60.0)
            listener.close()
            pool.close(10.0)

        closing.append(close)
        return Served(http, next(iter(models.by_id.values())).system, batcher, log, draining)

    yield start
    for close in closing:
        close()
