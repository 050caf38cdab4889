"""A bounded queue of questions that compute in turns, so that a slow one delays nobody else.

A question runs in a thread of its own, and computes only while it holds one of a few slots. It
looks at its job before every token (``checkpoint``). There it ends if it is too late or nobody
waits for the answer any more, and there it may have to give its slot away:

- A question that has computed for longer than ``short_seconds``, or is known to be long, is a long
  one. ``reserved`` slots are never left to long questions.
- A long question that has computed for ``turn_seconds`` lets the next one have its slot.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from dragoman.serving.limits import Limits, RequestRefused

Value = TypeVar("Value")

AVERAGE_OVER = 20  # questions over which the mean duration is taken, roughly


class JobEnded(RequestRefused):
    """A job ends before it has a result: it is too late, or nobody waits for it any more."""


class Job:
    """What a computation is told about its limits. This one has none: it is for callers that just wait."""

    def checkpoint(self) -> bool:
        """Return False, or raise ``JobEnded`` if the job has to end. May wait until it is this job's turn.

        This is what ``Session.search`` and others take as ``cancelled``.
        """
        return False

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let others compute while this job waits for something else."""
        yield

    def wait_for(self, future: Future[Value]) -> Value:
        """Return the result of a computation in another thread."""
        return future.result()


UNLIMITED = Job()


class QueuedJob(Job):
    """A question in a queue. All of its changing fields belong to the queue's lock."""

    def __init__(self, queue: Queue, work: Callable[[Job], Any], seconds: float, is_long: bool) -> None:
        self.queue, self.work, self.is_long = queue, work, is_long
        self.deadline = time.monotonic() + seconds
        self.seconds = seconds
        self.used = 0.0  # seconds of computing, without the turn that it has now
        self.since: float | None = None  # when the turn that it has now began
        self.has_begun = False
        self.is_cancelled = False
        self.changed = threading.Condition(queue.lock)  # it got a slot, or it is cancelled
        self.future: Future[Any] = Future()
        self.future.set_running_or_notify_cancel()  # so that nobody but the queue ends it

    def checkpoint(self) -> bool:
        self.check()
        self.queue.take_turns(self)
        return False

    def check(self) -> None:
        """Raise ``JobEnded`` if this job is cancelled or too late."""
        if self.is_cancelled:
            raise JobEnded(499, "the question was cancelled")
        if time.monotonic() > self.deadline:
            raise self.too_late()

    def too_late(self) -> JobEnded:
        """Return the error for a deadline that has passed, which says whether computing had begun."""
        if self.has_begun:
            sentence = f"there was no answer within {self.seconds:g} s; ask for less: a shorter input, a smaller beam"
            return JobEnded(504, sentence)
        sentence = f"others were computed for {self.seconds:g} s before this question; ask again later"
        return JobEnded(503, sentence, self.queue.retry_after())

    def cancel(self) -> None:
        """End this job at its next checkpoint, or now if it waits. A job that is done stays as it is."""
        with self.queue.lock:
            self.is_cancelled = True
            self.changed.notify_all()

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.queue.release(self)
        yield  # after an error the job has no slot, and ends
        self.queue.acquire(self)

    def wait_for(self, future: Future[Value]) -> Value:
        def wake(_: Future[Value]) -> None:
            with self.queue.lock:
                self.changed.notify_all()

        with self.paused():
            future.add_done_callback(wake)
            with self.queue.lock:
                while not future.done():
                    self.check()
                    self.changed.wait(max(0.0, self.deadline - time.monotonic()))
        return future.result()


class Queue:
    """The questions that are computed or wait. Many threads may submit questions."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.lock = threading.RLock()
        self._jobs: set[QueuedJob] = set()  # all that are not done
        self._waiting: list[QueuedJob] = []  # for a slot, the longest first
        self._computing: set[QueuedJob] = set()
        self._mean = 0.1  # seconds that a question computes, as of late
        self._is_closed = False
        import torch  # here, because a server whose workers do without it uses the rest of this file

        # The slots share the cores. Threads beyond the cores would slow each other down.
        threads = max(1, torch.get_num_threads() // limits.slots)
        self._pool = ThreadPoolExecutor(
            limits.slots + limits.waiting, "answer", initializer=torch.set_num_threads, initargs=(threads,)
        )

    def submit(self, work: Callable[[Job], Any], *, seconds: float, is_long: bool = False) -> QueuedJob:
        """Add a question, and return its job, whose ``future`` will have the answer.

        Raise ``RequestRefused`` if too many wait already.
        """
        with self.lock:
            if self._is_closed:
                raise RequestRefused(503, "the server is being stopped; ask again when it runs")
            if len(self._jobs) >= self.limits.slots + self.limits.waiting:
                raise RequestRefused(
                    429, f"{len(self._jobs)} questions wait already; ask again later", self.retry_after()
                )
            job = QueuedJob(self, work, seconds, is_long)
            self._jobs.add(job)
        self._pool.submit(self._run, job)
        return job

    def retry_after(self) -> int:
        """Return in how many seconds the questions that wait now should be done, 1 to 60."""
        return min(60, max(1, round(len(self._jobs) * self._mean / self.limits.slots)))

    def close(self) -> None:
        """End all jobs at their next checkpoint, and wait for them."""
        with self.lock:
            self._is_closed = True
            for job in self._jobs:
                job.cancel()
        self._pool.shutdown()

    def _run(self, job: QueuedJob) -> None:
        try:
            self.acquire(job)
            result = job.work(job)
        except BaseException as error:
            self._finish(job)
            job.future.set_exception(error)
        else:
            self._finish(job)
            job.future.set_result(result)

    def _finish(self, job: QueuedJob) -> None:
        with self.lock:
            self.release(job)
            self._jobs.discard(job)
            self._mean += (job.used - self._mean) / AVERAGE_OVER

    def acquire(self, job: QueuedJob) -> None:
        """Wait until the job has a slot. Raise ``JobEnded`` if it has to end before."""
        with self.lock:
            self._waiting.append(job)
            self._grant()
            try:
                while job not in self._computing:
                    job.check()
                    job.changed.wait(max(0.0, job.deadline - time.monotonic()))
            finally:
                if job in self._waiting:
                    self._waiting.remove(job)
            job.has_begun = True

    def release(self, job: QueuedJob) -> None:
        """Take the job's slot away, if it has one, and give it to the next."""
        with self.lock:
            if job in self._computing:
                self._computing.discard(job)
                job.used += time.monotonic() - (job.since or 0.0)
                self._grant()

    def take_turns(self, job: QueuedJob) -> None:
        """Give the job's slot away for a while if others should have it."""
        now = time.monotonic()
        turn = now - (job.since if job.since is not None else now)
        if not job.is_long and job.used + turn < self.limits.short_seconds:
            return
        with self.lock:
            if job not in self._computing:
                return
            job.is_long = True
            is_over = self._long() > self._slots_for_long()
            if is_over or (turn > self.limits.turn_seconds and self._waiting):
                self.release(job)
                self.acquire(job)

    def _long(self) -> int:
        return sum(job.is_long for job in self._computing)

    def _slots_for_long(self) -> int:
        return max(1, self.limits.slots - self.limits.reserved)

    def _grant(self) -> None:
        """Give free slots to those that have waited longest and may have one."""
        for job in list(self._waiting):
            if len(self._computing) >= self.limits.slots:
                return
            if job.is_long and self._long() >= self._slots_for_long():
                continue
            self._waiting.remove(job)
            self._computing.add(job)
            job.since = time.monotonic()
            job.changed.notify_all()
