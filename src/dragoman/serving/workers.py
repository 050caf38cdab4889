"""Workers: processes that compute batches, and share the weights.

They are forked from the process that has loaded the models, so that weights are in memory once. A
thread of that process belongs to each of them: it takes a batch from the queue, sends it, and
delivers the answers. While a continuous batch is computed, it sends the inputs that enter, and tells
which ones nobody waits for any more. A worker that ends, or does not end a batch that nobody waits for, is replaced.
Where there is no fork (Windows, macOS), and for a GPU, the thread computes by itself.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import pickle
import select
import signal
import stat
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from dragoman.inference.workers import can_fork
from dragoman.serving.batches import Batch
from dragoman.serving.batching import Batcher
from dragoman.serving.channel import Bell, Compute, Drop, Inbox
from dragoman.serving.compute import Answered, Item, Refused, Task, compute
from dragoman.serving.continuous import Deliver, Receive, compute_continuously
from dragoman.serving.limits import Limits
from dragoman.serving.models import Models

NICER = 5  # so that the process that talks to clients is not kept waiting by those that compute
STUCK_SECONDS = 10.0  # after which a batch that nobody waits for, and that does not end, costs its worker the life
POLL_SECONDS = 1.0
READY = b"ready"
UNANSWERED = "the server failed: a mistake in it"
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
        models, limits, batcher = self.pool.models, self.pool.limits, self.pool.batcher
        if batch.is_continuous:

            def deliver(answers: Mapping[int, Answered]) -> None:
                batcher.deliver(batch, answers)

            attempt_continuously(models, limits, batch.task, batch.items, lambda: batcher.exchange(batch), deliver)
            batcher.fail(batch, 500, UNANSWERED)  # if any is left, which would be a mistake
            return
        indices, items = list(batch.items), list(batch.items.values())

        def emit(place: int, event: bytes) -> None:
            batch.emit(indices[place], event)

        answers = attempt(models, limits, batch.task, items, emit, lambda: batch.abandoned is not None)
        batcher.deliver(batch, dict(zip(indices, answers, strict=True)))

    def end(self) -> None:
        """End the worker at once."""


class ForkedWorker(Worker):
    """A worker in a process of its own."""

    def __init__(self, pool: Pool) -> None:
        super().__init__(pool)
        self.is_ready = False
        self._sending = threading.Lock()
        self._is_ending = False
        self._bell = Bell()
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
            if batch.is_continuous:
                self._feed_batch(batch)
            else:
                self._follow_batch(batch)
        except (EOFError, OSError):
            self.pool.batcher.fail(batch, 503, "the worker that computed this has ended; ask again, or for less")
            if not self._is_ending:
                self._restart()
                self._wait_until_ready()

    def _follow_batch(self, batch: Batch) -> None:
        """Send a batch, pass on its events, and deliver its answers."""
        batch.stop = lambda: self._stop(batch.number)
        self._send(Compute(batch.number, batch.task, batch.items, False))
        if batch.abandoned is not None:  # before the worker had it
            self._stop(batch.number)
        while batch.open:
            while not self.pipe.poll(POLL_SECONDS):
                self._kill_if_stuck(batch)
            number, index, value = pickle.loads(self.pipe.recv_bytes())
            if number != batch.number:
                continue
            if index is None:
                self.pool.batcher.deliver(batch, value)
            else:
                batch.emit(index, value)

    def _feed_batch(self, batch: Batch) -> None:
        """Send a continuous batch and what enters it, and deliver each answer when it is there."""
        batcher = self.pool.batcher
        poller = select.poll()
        poller.register(self.pipe.fileno(), select.POLLIN)
        poller.register(self._bell.fileno(), select.POLLIN)
        batch.wake = self._bell.ring
        _, gone = batcher.exchange(batch)  # what has changed before this could be said
        added = batch.items
        while batch.open:
            if added:
                self._send(Compute(batch.number, batch.task, added, True))
            if gone:
                self._send(Drop(batch.number, gone))
            ready = dict(poller.poll(1000 * POLL_SECONDS))
            if not ready:
                self._kill_if_stuck(batch)
            if self._bell.fileno() in ready:
                self._bell.silence()
            if self.pipe.fileno() in ready:
                number, _, answers = pickle.loads(self.pipe.recv_bytes())
                if number == batch.number:
                    batcher.deliver(batch, answers)
            added, gone = batcher.exchange(batch)

    def _kill_if_stuck(self, batch: Batch) -> None:
        if batch.abandoned is not None and time.monotonic() - batch.abandoned > STUCK_SECONDS:
            self.process.kill()  # reading fails next

    def _stop(self, number: int) -> None:
        with suppress(OSError):
            self._send(Drop(number, None))

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
    except Exception as error:
        return [_excuse(error)] * len(items)


def attempt_continuously(
    models: Models, limits: Limits, task: Task, first: Mapping[int, Item], receive: Receive, deliver: Deliver
) -> None:
    """Compute a continuous batch; a fault of the program is an answer too."""
    left = set(first)

    def receive_more() -> tuple[Mapping[int, Item], Sequence[int]]:
        added, gone = receive()
        left.update(added)
        return added, gone

    def deliver_some(answers: Mapping[int, Answered]) -> None:
        left.difference_update(answers)
        deliver(answers)

    try:
        compute_continuously(models, limits, task, first, receive_more, deliver_some)
    except Exception as error:
        deliver(dict.fromkeys(left, _excuse(error)))


def _excuse(error: Exception) -> Refused:
    """Return the answer for inputs whose worker failed."""
    if isinstance(error, MemoryError):
        return Refused(503, "there is not enough memory for this; ask for less")
    print(f"dragoman: a worker failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    return Refused(500, f"the server failed ({type(error).__name__}): a mistake in it; its log says more")


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
        inbox = Inbox(pipe)
        while True:
            _answer(pipe, inbox, models, limits)


def _answer(pipe: Connection, inbox: Inbox, models: Models, limits: Limits) -> None:
    """Wait for a batch, and answer it."""
    number, task, items, is_continuous = inbox.wait()

    def deliver(answers: Mapping[int, Answered]) -> None:
        pipe.send_bytes(pickle.dumps((number, None, answers)))

    if is_continuous:
        attempt_continuously(models, limits, task, items, inbox.receive, deliver)
        return
    indices = list(items)

    def emit(place: int, event: bytes) -> None:
        pipe.send_bytes(pickle.dumps((number, indices[place], event)))

    answers = attempt(models, limits, task, list(items.values()), emit, inbox.is_stopped)
    deliver(dict(zip(indices, answers, strict=True)))


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


def _close_others(own: int) -> None:
    """Close all inherited sockets but one: a connection ends only when every process has closed it."""
    for name in os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else ():
        number = int(name)
        with suppress(OSError):
            if number > 2 and number != own and stat.S_ISSOCK(os.fstat(number).st_mode):
                os.close(number)
