"""Workers: processes that compute batches, and share the weights.

They are forked from the process that has loaded the models, so that weights are in memory once. A
thread of that process belongs to each of them: it takes a batch from the queue, sends it, and
delivers the answers. A worker that ends, or does not end a batch that nobody waits for, is replaced.
Where there is no fork (Windows, macOS), and for a GPU, the thread computes by itself.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import signal
import stat
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from dragoman.inference.workers import can_fork
from dragoman.serving.batching import Batch, Batcher
from dragoman.serving.compute import Item, Refused, Task, compute
from dragoman.serving.limits import Limits
from dragoman.serving.models import Models

NICER = 5  # so that the process that talks to clients is not kept waiting by those that compute
STUCK_SECONDS = 10.0  # after which a batch that nobody waits for, and that does not end, costs its worker the life
POLL_SECONDS = 1.0
READY = b"ready"
PR_SET_PDEATHSIG = 1  # of prctl(2)


class Pool:
    """All workers of a server."""

    def __init__(
        self,
        models: Models,
        batcher: Batcher,
        limits: Limits,
        *,
        forks: bool | None = None,
        on_restart: Callable[[], None] | None = None,
    ) -> None:
        """``forks``: workers are processes; None: where that is possible."""
        self.models, self.batcher, self.limits = models, batcher, limits
        self.on_restart = on_restart or (lambda: None)
        if forks is None:
            forks = all(can_fork(model.system.engine.place) for model in models.by_id.values())
        if forks:
            gc.collect()
            gc.freeze()  # a collection in a worker would write to pages that all of them share
        self.workers = [(ForkedWorker if forks else Worker)(self) for _ in range(batcher.workers)]

    @property
    def is_ready(self) -> bool:
        """Tell whether every worker has said that it can compute."""
        return all(worker.is_ready for worker in self.workers)

    @property
    def processes(self) -> list[int]:
        """Return the ids of the processes that compute."""
        return [
            worker.process.pid for worker in self.workers if isinstance(worker, ForkedWorker) and worker.process.pid
        ]

    def start(self) -> None:
        """Start the threads that feed the workers."""
        for worker in self.workers:
            worker.thread.start()

    def close(self, seconds: float) -> None:
        """Wait for what is computed, up to so many seconds, then end all workers."""
        self.batcher.close()
        until = time.monotonic() + seconds
        for worker in self.workers:
            worker.thread.join(max(0.0, until - time.monotonic()))
        for worker in self.workers:
            worker.end()


class Worker:
    """What takes batches from the queue and computes them. This one computes in its own thread."""

    is_ready = True

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.thread = threading.Thread(target=self._feed, name="worker", daemon=True)

    def _feed(self) -> None:
        while (batch := self.pool.batcher.take()) is not None:
            self.answer(batch)

    def answer(self, batch: Batch) -> None:
        """Compute a batch and deliver its answers."""
        models, limits = self.pool.models, self.pool.limits
        answers = attempt(models, limits, batch.task, batch.items, batch.emit, lambda: batch.abandoned is not None)
        self.pool.batcher.finish(batch, answers)

    def end(self) -> None:
        """End the worker at once."""


class ForkedWorker(Worker):
    """A worker in a process of its own."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self.is_ready = False
        self._sending = threading.Lock()
        self._is_ending = False
        self._fork()

    def _fork(self) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of fork in a process that has threads
            self.process = context.Process(
                target=_work, args=(theirs, self.pool.models, self.pool.limits), daemon=True, name="dragoman-worker"
            )
            self.process.start()
        theirs.close()

    def _feed(self) -> None:
        self._wait_until_ready()
        super()._feed()

    def _wait_until_ready(self) -> None:
        """Wait for the process to say that it can compute; one that ends before is replaced."""
        while not self._is_ending:
            try:
                assert self.pipe.recv_bytes() == READY
                self.is_ready = True
                return
            except (EOFError, OSError):
                self._restart()

    def answer(self, batch: Batch) -> None:
        try:
            batch.stop = lambda: self._stop(batch.number)
            self._send((batch.number, batch.task, batch.items))
            if batch.abandoned is not None:  # before the worker had it
                self._stop(batch.number)
            while True:
                while not self.pipe.poll(POLL_SECONDS):
                    if batch.abandoned is not None and time.monotonic() - batch.abandoned > STUCK_SECONDS:
                        self.process.kill()  # reading fails next
                number, index, value = pickle.loads(self.pipe.recv_bytes())
                if number != batch.number:
                    continue
                if index is None:
                    self.pool.batcher.finish(batch, value)
                    return
                batch.emit(index, value)
        except (EOFError, OSError):
            self.pool.batcher.fail(batch, 503, "the worker that computed this has ended; ask again, or for less")
            if not self._is_ending:
                self._restart()
                self._wait_until_ready()

    def _stop(self, number: int) -> None:
        with suppress(OSError):
            self._send((number, None, None))

    def _send(self, message: Any) -> None:
        with self._sending:
            self.pipe.send(message)

    def _restart(self) -> None:
        """Replace the process by another one."""
        self.pipe.close()
        self.process.kill()
        self.process.join()
        self.pool.on_restart()
        time.sleep(0.2)  # a worker that always ends must not keep the machine busy
        self._fork()

    def end(self) -> None:
        self._is_ending = True
        self.process.terminate()
        self.process.join(2.0)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


def attempt(models: Models, limits: Limits, task: Task, items: list[Item], *calls: Any) -> list[Any]:
    """Compute a batch; a fault of the program is an answer too."""
    try:
        return compute(models, limits, task, items, *calls)
    except MemoryError:
        return [Refused(503, "there is not enough memory for this; ask for less")] * len(items)
    except Exception as error:
        print(f"dragoman: a worker failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return [Refused(500, f"the server failed ({type(error).__name__}): a mistake in it; its log says more")] * len(
            items
        )


def _work(pipe: Connection, models: Models, limits: Limits) -> None:
    """Compute the batches that come through a pipe, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that started this one says when to end
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    _close_others(pipe.fileno())
    with suppress(OSError):
        os.nice(NICER)
    end_with_parent()
    limit_memory(limits.worker_bytes)
    torch = sys.modules.get("torch")  # not imported here: an engine may do without
    if torch is not None:
        torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # where torch is loaded later
    pipe.send_bytes(READY)
    with suppress(EOFError, OSError):  # the process that started this one is gone
        while True:
            number, task, items = pipe.recv()
            if task is None:  # it was to be stopped, and was done already
                continue

            def emit(index: int, event: bytes, number: int = number) -> None:
                pipe.send_bytes(pickle.dumps((number, index, event)))

            answers = attempt(models, limits, task, items, emit, _Stopped(pipe, number))
            pipe.send_bytes(pickle.dumps((number, None, answers)))


def limit_memory(further: int) -> None:
    """Let this process take so many bytes more than it has. What asks for more fails, and the worker is replaced.

    A format that a client sends may be small and need any amount of memory to be built.
    """
    statm = Path("/proc/self/statm")
    if statm.exists():
        import resource  # not on Windows

        size = int(statm.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        _, most = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (size + further, most))


def end_with_parent() -> None:
    """Have this process killed when the one that started it ends, whatever it computes then. Only on Linux."""
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class _Stopped:
    """Tells whether a batch is to be stopped, which comes through the pipe."""

    def __init__(self, pipe: Connection, number: int) -> None:
        self._pipe, self._number = pipe, number
        self._is_stopped = False

    def __call__(self) -> bool:
        while not self._is_stopped and self._pipe.poll():
            number, task, _ = self._pipe.recv()
            assert task is None  # the next batch is sent when this one is answered
            self._is_stopped = number == self._number
        return self._is_stopped


def _close_others(own: int) -> None:
    """Close all inherited sockets but one: a connection ends only when every process has closed it."""
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        number = int(name)
        with suppress(OSError):
            if number > 2 and number != own and stat.S_ISSOCK(os.fstat(number).st_mode):
                os.close(number)
