"""A bounded queue of questions whose inputs are computed together, whoever asked.

A question has a task and some inputs. A worker that is free takes the task of the question that has
waited longest, and of every question with this task an input in turn, until the batch is full. So a
batch has inputs of many clients, a question with many inputs does not keep a short one waiting, and
no task starves.

A batch starts at once if nobody else asks. If the last one had several inputs, it waits up to
``window`` seconds for as many: clients that were answered together ask again at about the same time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count

from dragoman.serving.compute import Answered, Item, Refused, Task
from dragoman.serving.limits import Limits, RequestRefused
from dragoman.serving.queue import JobEnded

AVERAGE_OVER = 20  # batches over which the mean duration of an input is taken, roughly


@dataclass(frozen=True)
class Question:
    """What one request asks."""

    task: Task
    items: Sequence[Item]
    on_event: Callable[[bytes], None] | None = None  # gets the tokens of a task that is followed


class BatchedJob:
    """A question in the queue. All of its changing fields belong to the queue's lock."""

    def __init__(self, batcher: Batcher, question: Question, seconds: float) -> None:
        self.batcher, self.question, self.seconds = batcher, question, seconds
        self.arrived = time.monotonic()
        self.began: float | None = None
        self.is_cancelled = False
        self.left = deque(range(len(question.items)))  # places of inputs that no worker has taken
        self.answers: dict[int, Answered] = {}
        self.batches: list[Batch] = []
        self.future: Future[list[Answered]] = Future()
        self.future.set_running_or_notify_cancel()  # so that nobody but the queue ends it

    def too_late(self) -> JobEnded:
        """Return the error for a deadline that has passed, which says whether computing had begun."""
        if self.began is not None:
            sentence = f"there was no answer within {self.seconds:g} s; ask for less: fewer inputs, a smaller beam"
            return JobEnded(504, sentence)
        sentence = f"others were computed for {self.seconds:g} s before this question; ask again later"
        return JobEnded(503, sentence, self.batcher.retry_after())

    def cancel(self) -> None:
        """Give up this question: its place is free, and a batch that nobody waits for ends. One that is done stays."""
        self.batcher.cancel(self)


class Batch:
    """Inputs that are computed together."""

    def __init__(self, number: int, task: Task, members: Sequence[tuple[BatchedJob, int]]) -> None:
        self.number, self.task, self.members = number, task, members
        self.taken = time.monotonic()
        self.abandoned: float | None = None  # since when nobody waits for it
        self.stop: Callable[[], None] | None = None  # tells the worker to end it

    @property
    def items(self) -> list[Item]:
        """Return the inputs."""
        return [job.question.items[place] for job, place in self.members]

    def emit(self, index: int, event: bytes) -> None:
        """Pass an event of an input on to whoever asked."""
        job, _ = self.members[index]
        if job.question.on_event is not None and not job.is_cancelled:
            job.question.on_event(event)


class Batcher:
    """The questions that are computed or wait. Many threads may submit questions and take batches."""

    def __init__(self, limits: Limits, workers: int = 1, on_batch: Callable[[Batch], None] | None = None) -> None:
        """``on_batch`` is called with each batch that is taken."""
        self.limits, self.workers, self._on_batch = limits, workers, on_batch
        self._changed = threading.Condition()
        self._waiting: deque[BatchedJob] = deque()  # with inputs that nobody has taken, the longest first
        self._computing: set[Batch] = set()
        self._numbers = count(1)
        self._expected = 1  # inputs of the last batch
        self._mean = 0.05  # seconds that an input takes, as of late
        self._is_closed = False
        self._pausing = 0  # workers that wait for a batch to fill

    @property
    def waiting(self) -> int:
        """Return how many inputs wait."""
        with self._changed:
            return sum(len(job.left) for job in self._waiting)

    @property
    def computing(self) -> int:
        """Return how many inputs are computed."""
        with self._changed:
            return sum(len(batch.members) for batch in self._computing)

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing waits and nothing is computed."""
        with self._changed:
            return not self._waiting and not self._computing

    def submit(self, work: Question, *, seconds: float, is_long: bool = False) -> BatchedJob:
        """Add a question, and return its job, whose ``future`` will have the answers of its inputs, in their order.

        Raise ``RequestRefused`` if too many inputs wait already. A question that nobody is before is always taken.
        """
        job = BatchedJob(self, work, seconds)
        with self._changed:
            if self._is_closed:
                raise RequestRefused(503, "the server is being stopped; ask again when it runs", 5)
            waiting = self.waiting
            if waiting and waiting + len(work.items) > self.limits.waiting:
                raise RequestRefused(429, f"{waiting:,} inputs wait already; ask again later", self.retry_after())
            if not work.items:
                job.future.set_result([])
                return job
            self._waiting.append(job)
            if (
                not self._pausing or self._pause() <= 0
            ):  # waking a thread for every input would cost more than parsing it
                self._changed.notify()
        return job

    def retry_after(self) -> int:
        """Return in how many seconds the inputs that wait now should be done, 1 to 60."""
        return min(60, max(1, round(self.waiting * self._mean / max(1, self.workers))))

    def take(self) -> Batch | None:
        """Wait for something to compute, and return it; None if the queue was closed and nothing is left."""
        with self._changed:
            while True:
                if self._waiting:
                    pause = self._pause()
                    if pause <= 0:
                        batch = self._take()
                        if self._waiting:
                            self._changed.notify()
                        return batch
                    self._pausing += 1
                    self._changed.wait(pause)
                    self._pausing -= 1
                elif self._is_closed:
                    return None
                else:
                    self._changed.wait()

    def _pause(self) -> float:
        """Return for how long to wait for more inputs."""
        first = self._waiting[0]
        ready = sum(len(job.left) for job in self._waiting if job.question.task == first.question.task)
        if ready >= min(self._expected, self.limits.batch):
            return 0.0
        return first.arrived + self.limits.window - time.monotonic()

    def _take(self) -> Batch:
        task = self._waiting[0].question.task
        chosen = [job for job in self._waiting if job.question.task == task]
        members: list[tuple[BatchedJob, int]] = []
        while chosen and len(members) < self.limits.batch:
            for job in chosen[: self.limits.batch - len(members)]:
                members.append((job, job.left.popleft()))
            chosen = [job for job in chosen if job.left]
        batch = Batch(next(self._numbers), task, members)
        for job in dict.fromkeys(job for job, _ in members):
            job.began = job.began or batch.taken
            job.batches.append(batch)
            self._waiting.remove(job)
            if job.left:
                self._waiting.append(job)  # it has had its turn
        self._computing.add(batch)
        self._expected = len(members)
        if self._on_batch is not None:
            self._on_batch(batch)
        return batch

    def finish(self, batch: Batch, answers: Sequence[Answered]) -> None:
        """Deliver the answers of a batch, one for each of its inputs."""
        done: list[BatchedJob] = []
        with self._changed:
            self._computing.discard(batch)
            seconds = (time.monotonic() - batch.taken) / len(batch.members)
            self._mean += (seconds - self._mean) / AVERAGE_OVER
            for (job, place), answer in zip(batch.members, answers, strict=True):
                job.answers[place] = answer
                if len(job.answers) == len(job.question.items):
                    done.append(job)
        for job in done:
            if not job.future.done():
                job.future.set_result([job.answers[place] for place in range(len(job.question.items))])

    def fail(self, batch: Batch, status: int, sentence: str) -> None:
        """Answer all inputs of a batch with a refusal: its worker has ended."""
        self.finish(batch, [Refused(status, sentence)] * len(batch.members))

    def cancel(self, job: BatchedJob) -> None:
        """Take a question out of the queue, and stop the batches that nobody waits for any more."""
        stops = []
        with self._changed:
            if job.is_cancelled or job.future.done():
                return
            job.is_cancelled = True
            if job in self._waiting:
                self._waiting.remove(job)
            for batch in job.batches:
                is_abandoned = all(member.is_cancelled or member.future.done() for member, _ in batch.members)
                if batch in self._computing and is_abandoned:
                    batch.abandoned = time.monotonic()
                    stops += [batch.stop] if batch.stop is not None else []
        for stop in stops:
            stop()

    def close(self) -> None:
        """Refuse what comes from now on. Workers get None when all that waits is done."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
