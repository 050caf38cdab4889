"""A bounded queue of questions whose inputs are computed together, whoever asked.

A question has a task and some inputs. A worker that is free takes the task of the question that has
waited longest, and of every question with this task an input in turn, until the batch is full. So a
batch has inputs of many clients, a question with many inputs does not keep a short one waiting, and
no task starves.

A batch of a continuous task is fed while it is computed: an input that is done leaves, and one that
waits enters. Workers with the same task share its inputs evenly. A worker adds no more inputs to its
batch, and so comes to its end, if a task waits that no worker computes, or any other task has waited
for ``turn`` seconds.

A batch of another task is complete when it begins. It starts at once if nobody else asks. If the last
one had several inputs, it waits up to ``window`` seconds for as many: clients that were answered
together ask again at about the same time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count

from dragoman.serving.batches import Batch, BatchedJob, Question, TaskQueue
from dragoman.serving.compute import Answered, Item, Refused, Task
from dragoman.serving.limits import Limits, RequestRefused

AVERAGE_OVER = 20  # answers over which the mean duration of an input is taken, roughly


class Batcher:
    """The questions that are computed or wait. Many threads may submit questions and take batches."""

    def __init__(
        self,
        limits: Limits,
        workers: int = 1,
        on_batch: Callable[[Batch, Sequence[BatchedJob]], None] | None = None,
        is_continuous: Callable[[Task], bool] | None = None,
    ) -> None:
        """``on_batch`` is called with a batch and the questions of the inputs that a worker has taken into it.

        ``is_continuous`` tells whether a task's batches are fed while they are computed.
        """
        self.limits, self.workers, self._on_batch = limits, workers, on_batch
        self._is_continuous = is_continuous or (lambda task: False)
        self._changed = threading.Condition()
        self._queues: dict[Task, TaskQueue] = {}  # without those that are empty
        self._computing: set[Batch] = set()
        self._numbers = count(1)
        self._expected = 1  # inputs of the last batch
        self._mean = 0.05  # seconds that an input takes, as of late
        self._is_closed = False
        self._pausing = 0  # workers that wait for a batch to fill
        self._idle = 0  # workers that wait for anything

    @property
    def waiting(self) -> int:
        """Return how many inputs wait."""
        with self._changed:
            return sum(queue.inputs for queue in self._queues.values())

    @property
    def computing(self) -> int:
        """Return how many inputs are computed."""
        with self._changed:
            return sum(len(batch.open) for batch in self._computing)

    @property
    def is_idle(self) -> bool:
        """Tell whether nothing waits and nothing is computed."""
        with self._changed:
            return not self._queues and not self._computing

    def submit(self, work: Question, *, seconds: float, is_long: bool = False) -> BatchedJob:
        """Add a question, and return its job, whose ``future`` will have the answers of its inputs, in their order.

        Raise ``RequestRefused`` if too many inputs wait already. A question that nobody is before is always taken.
        """
        job = BatchedJob(self, work, seconds)
        is_continuous = self._is_continuous(work.task)
        with self._changed:
            if self._is_closed:
                raise RequestRefused(503, "the server is being stopped; ask again when it runs", 5)
            waiting = self.waiting
            if waiting and waiting + len(work.items) > self.limits.waiting:
                raise RequestRefused(429, f"{waiting:,} inputs wait already; ask again later", self.retry_after())
            if not work.items:
                job.future.set_result([])
                return job
            if work.task not in self._queues:
                self._queues[work.task] = TaskQueue(work.task, is_continuous)
            queue = self._queues[work.task]
            queue.append(job)
            # Waking a thread for every input would cost more than parsing it.
            if is_continuous or not self._pausing or self._pause(self._first()) <= 0:
                self._call_for(queue)
        return job

    def retry_after(self) -> int:
        """Return in how many seconds the inputs that wait now should be done, 1 to 60."""
        return min(60, max(1, round(self.waiting * self._mean / max(1, self.workers))))

    # ---- for workers

    def take(self) -> Batch | None:
        """Wait for something to compute, and return it; None if the queue was closed and nothing is left."""
        with self._changed:
            while True:
                if self._queues:
                    queue = self._first()
                    pause = self._pause(queue)
                    if pause <= 0:
                        batch = self._take(queue)
                        if self._queues:
                            self._call_for(self._first())
                        return batch
                    self._pausing += 1
                    self._changed.wait(pause)
                    self._pausing -= 1
                elif self._is_closed:
                    return None
                else:
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1

    def exchange(self, batch: Batch) -> tuple[dict[int, Item], list[int]]:
        """Return inputs that enter a continuous batch, by their indices, and those that nobody waits for any more.

        Without inputs that are computed or enter, the batch has ended.
        """
        with self._changed:
            if batch not in self._computing:
                return {}, []
            gone, batch.gone = batch.gone, []
            added: dict[int, Item] = {}
            queue = self._queues.get(batch.task)
            if queue is not None and self._may_grow(batch):
                before = set(batch.open)
                self._fill(batch, queue, self._share(batch.task) - len(batch.open))
                added = {index: item for index, item in batch.items.items() if index not in before}
            if not batch.open:
                self._computing.discard(batch)
            return added, gone

    def deliver(self, batch: Batch, answers: Mapping[int, Answered]) -> None:
        """Deliver answers of a batch, by their indices. One that has all of them and is not continuous has ended."""
        done: list[BatchedJob] = []
        with self._changed:
            now = time.monotonic()
            if answers:
                seconds = (now - batch.answered) / len(answers)
                batch.answered = now
                self._mean += (seconds - self._mean) / AVERAGE_OVER
            for index, answer in answers.items():
                if index not in batch.open:
                    continue
                job, place = batch.open.pop(index)
                job.answers[place] = answer
                if len(job.answers) == len(job.question.items):
                    done.append(job)
            if not batch.open and not batch.is_continuous:
                self._computing.discard(batch)
        for job in done:
            if not job.future.done():
                job.future.set_result([job.answers[place] for place in range(len(job.question.items))])

    def fail(self, batch: Batch, status: int, sentence: str) -> None:
        """Answer all inputs of a batch with a refusal and end it: its worker has ended."""
        self.deliver(batch, dict.fromkeys(list(batch.open), Refused(status, sentence)))
        with self._changed:
            self._computing.discard(batch)

    def cancel(self, job: BatchedJob) -> None:
        """Take a question out of the queue and of continuous batches, and stop batches that nobody waits for."""
        calls: list[Callable[[], None] | None] = []
        with self._changed:
            if not job.is_wanted:
                return
            job.is_cancelled = True
            queue = self._queues.get(job.question.task)
            if queue is not None and job in queue.jobs:
                queue.remove(job)
                self._drop_empty(queue)
            for batch in job.batches & self._computing:
                if batch.is_continuous:
                    batch.gone += [index for index, (member, _) in batch.open.items() if member is job]
                    calls.append(batch.wake)
                if not any(member.is_wanted for member, _ in batch.open.values()):
                    batch.abandoned = time.monotonic()
                    calls.append(batch.stop)
        for call in calls:
            if call is not None:
                call()

    def close(self) -> None:
        """Refuse what comes from now on. Workers get None when all that waits is done."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    # ---- with the lock held

    def _first(self) -> TaskQueue:
        """Return the queue of the task that has waited longest."""
        return min(self._queues.values(), key=lambda queue: queue.jobs[0].turn)

    def _drop_empty(self, queue: TaskQueue) -> None:
        if not queue.jobs:
            del self._queues[queue.task]

    def _pause(self, queue: TaskQueue) -> float:
        """Return for how long to wait for more inputs. A continuous batch gets them later."""
        if queue.is_continuous or queue.inputs >= min(self._expected, self.limits.batch):
            return 0.0
        return queue.jobs[0].arrived + self.limits.window - time.monotonic()

    def _call_for(self, queue: TaskQueue) -> None:
        """Wake a worker that can take inputs of a task: an idle one, or the one that computes fewest of them."""
        if self._idle or (self._pausing and not queue.is_continuous):
            self._changed.notify()
            return
        able = [batch for batch in self._computing if batch.task == queue.task and batch.wake is not None]
        if able:
            least = min(able, key=lambda batch: len(batch.open))
            assert least.wake is not None
            least.wake()

    def _take(self, queue: TaskQueue) -> Batch:
        batch = Batch(next(self._numbers), queue.task, queue.is_continuous)
        self._computing.add(batch)
        self._fill(batch, queue, self._share(queue.task) if queue.is_continuous else self.limits.batch)
        self._expected = len(batch.open)
        return batch

    def _fill(self, batch: Batch, queue: TaskQueue, most: int) -> None:
        taken = queue.take(most)
        self._drop_empty(queue)
        batch.abandoned = None
        now = time.monotonic()
        for job, place in taken:
            batch.add(job, place)
            job.began = job.began or now
            job.batches.add(batch)
        if taken and self._on_batch is not None:
            self._on_batch(batch, [job for job, _ in taken])

    def _share(self, task: Task) -> int:
        """Return how many inputs of a task a worker may have: as many as others that compute it, or could."""
        computing = [len(batch.open) for batch in self._computing if batch.task == task]
        queue = self._queues.get(task)
        total = sum(computing) + (0 if queue is None else queue.inputs)
        return min(self.limits.batch, -(-total // (len(computing) + self._idle)))

    def _may_grow(self, batch: Batch) -> bool:
        """Tell whether inputs may enter a batch: its worker listens, none is idle, no other task is kept waiting."""
        if self._idle or not all(job.is_wanted for job, _ in batch.open.values()):
            return False
        computed = {other.task for other in self._computing}
        latest = time.monotonic() - self.limits.turn
        others = [queue for task, queue in self._queues.items() if task != batch.task]
        return all(queue.task in computed and queue.jobs[0].turn > latest for queue in others)
