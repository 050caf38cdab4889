"""What a server counts, for Prometheus."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dragoman.errors import MissingExtra

try:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
    from prometheus_client.gc_collector import GCCollector
    from prometheus_client.process_collector import ProcessCollector
except ImportError:
    raise MissingExtra("prometheus-client", "serve", "dragoman serve") from None

if TYPE_CHECKING:
    from dragoman.serving.batches import Batch, BatchedJob
    from dragoman.serving.batching import Batcher

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.requests = Counter(
            "dragoman_requests", "Requests that were answered.", ["path", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "dragoman_request_seconds", "Seconds until the answer.", ["path"], buckets=SECONDS, registry=self.registry
        )
        self.inputs = Counter("dragoman_inputs", "Inputs that were computed.", ["model"], registry=self.registry)
        self.batch = Histogram(
            "dragoman_batch_inputs", "Inputs that were computed together.", buckets=SIZES, registry=self.registry
        )
        self.queued = Histogram(
            "dragoman_queue_seconds", "Seconds until an input was taken by a worker.", buckets=SECONDS,
            registry=self.registry,
        )  # fmt: skip
        self.restarts = Counter("dragoman_worker_restarts", "Workers that were replaced.", registry=self.registry)
        self._waiting = Gauge("dragoman_inputs_waiting", "Inputs that wait.", registry=self.registry)
        self._computing = Gauge("dragoman_inputs_computing", "Inputs that are computed.", registry=self.registry)

    def watch(self, batcher: Batcher) -> None:
        """Show how full this queue is."""
        self._waiting.set_function(lambda: float(batcher.waiting))
        self._computing.set_function(lambda: float(batcher.computing))

    def count_batch(self, batch: Batch, jobs: Sequence[BatchedJob]) -> None:
        """Count the inputs that a worker has taken into a batch: the question of each."""
        self.batch.observe(len(batch.open))
        self.inputs.labels(batch.task.model).inc(len(jobs))
        now = time.monotonic()
        for job in jobs:
            self.queued.observe(now - job.arrived)

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self.requests.labels(path, str(status)).inc()
        self.seconds.labels(path).observe(seconds)

    def show(self) -> bytes:
        """Return all numbers as Prometheus reads them."""
        return generate_latest(self.registry)
