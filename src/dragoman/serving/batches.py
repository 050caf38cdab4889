"""What a queue of batches holds: questions, the inputs that are computed together, and the questions that wait."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from dragoman.serving.compute import Answered, Item, Task
from dragoman.serving.queue import JobEnded

if TYPE_CHECKING:
    from dragoman.serving.batching import Batcher


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
        self.turn = 0.0  # since when it has waited for its next turn
        self.began: float | None = None
        self.is_cancelled = False
        self.left = deque(range(len(question.items)))  # places of inputs that no worker has taken
        self.answers: dict[int, Answered] = {}
        self.batches: set[Batch] = set()
        self.future: Future[list[Answered]] = Future()
        self.future.set_running_or_notify_cancel()  # so that nobody but the queue ends it

    @property
    def is_wanted(self) -> bool:
        """Tell whether somebody waits for the answers."""
        return not self.is_cancelled and not self.future.done()

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
    """Inputs that are computed together. Its fields belong to the queue's lock."""

    def __init__(self, number: int, task: Task, is_continuous: bool) -> None:
        self.number, self.task, self.is_continuous = number, task, is_continuous
        self.taken = time.monotonic()
        self.answered = self.taken  # when the last answer came
        self.open: dict[int, tuple[BatchedJob, int]] = {}  # a question and a place in it, by the index in this batch
        self.gone: list[int] = []  # of these: nobody waits for them, and the worker has not been told
        self.abandoned: float | None = None  # since when nobody waits for it
        self.stop: Callable[[], None] | None = None  # tells the worker to end it
        self.wake: Callable[[], None] | None = None  # tells who feeds the worker that there is something to exchange
        self._indices = count()

    @property
    def members(self) -> list[tuple[BatchedJob, int]]:
        """Return the questions of the inputs that are not answered, and the places in them."""
        return list(self.open.values())

    @property
    def items(self) -> dict[int, Item]:
        """Return the inputs that are not answered, by their indices."""
        return {index: job.question.items[place] for index, (job, place) in self.open.items()}

    def add(self, job: BatchedJob, place: int) -> int:
        """Add an input and return its index."""
        index = next(self._indices)
        self.open[index] = job, place
        return index

    def emit(self, index: int, event: bytes) -> None:
        """Pass an event of an input on to whoever asked."""
        job, _ = self.open[index]
        if job.question.on_event is not None and not job.is_cancelled:
            job.question.on_event(event)


class TaskQueue:
    """The questions of one task that have inputs which nobody has taken, the longest waiting first."""

    def __init__(self, task: Task, is_continuous: bool) -> None:
        self.task, self.is_continuous = task, is_continuous
        self.jobs: deque[BatchedJob] = deque()
        self.inputs = 0

    def append(self, job: BatchedJob) -> None:
        """Let a question wait for its turn."""
        job.turn = time.monotonic()
        self.jobs.append(job)
        self.inputs += len(job.left)

    def remove(self, job: BatchedJob) -> None:
        """Take a question out."""
        self.jobs.remove(job)
        self.inputs -= len(job.left)

    def take(self, most: int) -> list[tuple[BatchedJob, int]]:
        """Take an input of each question in turn, until there are so many. A question with more has had its turn."""
        taken: list[tuple[BatchedJob, int]] = []
        left = self.jobs.copy()
        while left and len(taken) < most:
            job = left.popleft()
            taken.append((job, job.left.popleft()))
            if job.left:
                left.append(job)
        self.inputs -= len(taken)
        for job in dict.fromkeys(job for job, _ in taken):
            self.jobs.remove(job)
            if job.left:
                self.inputs -= len(job.left)
                self.append(job)
        return taken
