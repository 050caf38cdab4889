"""Questions compute in turns: a slow one delays nobody else, and each ends when it should."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.serving.limits import RequestRefused
from dragoman.serving.queue import Job, Queue
from dragoman.studio.cache import ResultCache

PATIENCE = 60.0  # seconds until a test gives up waiting for another thread
MakeQueue = Callable[..., Queue]


class Busy:
    """Work that computes until it is told to stop."""

    def __init__(self) -> None:
        self.has_begun, self.may_end = threading.Event(), threading.Event()

    def __call__(self, job: Job) -> str:
        self.has_begun.set()
        while not self.may_end.is_set():
            job.checkpoint()
        return "done"


def submit(queue: Queue, work: Callable[[Job], Any], seconds: float = PATIENCE, is_long: bool = False) -> Any:
    return queue.submit(work, seconds=seconds, is_long=is_long)


@pytest.mark.parametrize("is_known", [True, False], ids=["known to be long", "found to be long"])
@pytest.mark.parametrize("slow_ones", [1, 3])
def test_slow_questions_delay_no_short_one(make_queue: MakeQueue, slow_ones: int, is_known: bool) -> None:
    queue = make_queue(slots=2, reserved=1, short_seconds=PATIENCE if is_known else 0.0, turn_seconds=0.0)
    slow = [Busy() for _ in range(slow_ones)]
    jobs = [submit(queue, work, is_long=is_known) for work in slow]
    for work in slow:
        assert work.has_begun.wait(PATIENCE)  # they take turns, so each of them has begun
    assert [submit(queue, lambda _: 7).future.result(PATIENCE) for _ in range(5)] == [7] * 5
    assert not any(job.future.done() for job in jobs)
    for work in slow:
        work.may_end.set()
    assert [job.future.result(PATIENCE) for job in jobs] == ["done"] * slow_ones


def test_a_full_queue_says_when_to_come_back(make_queue: MakeQueue) -> None:
    queue = make_queue(slots=1, reserved=0, waiting=2)
    work = Busy()
    jobs = [submit(queue, work) for _ in range(3)]
    with pytest.raises(RequestRefused) as refused:
        submit(queue, work)
    assert refused.value.status == 429 and refused.value.retry_after and "3 questions wait" in str(refused.value)
    work.may_end.set()
    assert [job.future.result(PATIENCE) for job in jobs] == ["done"] * 3
    assert submit(queue, work).future.result(PATIENCE) == "done"  # there is room again


def test_a_deadline_ends_what_computes_and_what_waits(make_queue: MakeQueue) -> None:
    queue = make_queue(slots=1, reserved=0)
    late = submit(queue, Busy(), seconds=0.0)
    with pytest.raises(RequestRefused, match="ask for less") as refused:
        late.future.result(PATIENCE)
    assert refused.value.status == 504
    work = Busy()
    first = submit(queue, work)
    assert work.has_begun.wait(PATIENCE)
    with pytest.raises(RequestRefused, match="ask again later") as refused:
        submit(queue, work, seconds=0.0).future.result(PATIENCE)
    assert refused.value.status == 503 and refused.value.retry_after
    work.may_end.set()
    assert first.future.result(PATIENCE) == "done"


def test_a_cancelled_question_ends_and_frees_its_place(make_queue: MakeQueue) -> None:
    queue = make_queue(slots=1, reserved=0, waiting=1)
    computing, waiting = Busy(), Busy()
    jobs = [submit(queue, computing), submit(queue, waiting)]
    assert computing.has_begun.wait(PATIENCE)
    for job in reversed(jobs):
        job.cancel()
        with pytest.raises(RequestRefused, match="cancelled"):
            job.future.result(PATIENCE)
    assert not waiting.has_begun.is_set()
    assert submit(queue, lambda _: 7).future.result(PATIENCE) == 7


def test_an_error_frees_the_slot(make_queue: MakeQueue) -> None:
    queue = make_queue(slots=1, reserved=0)

    def fail(job: Job) -> None:
        with job.paused():
            raise ValueError("a mistake")

    for _ in range(3):
        with pytest.raises(ValueError, match="a mistake"):
            submit(queue, fail).future.result(PATIENCE)
    assert submit(queue, lambda _: 7).future.result(PATIENCE) == 7


def test_a_queue_that_is_closed_ends_its_jobs_and_takes_no_others(make_queue: MakeQueue) -> None:
    queue = make_queue(slots=1, reserved=0)
    jobs = [submit(queue, Busy()) for _ in range(3)]
    queue.close()
    for job in jobs:
        with pytest.raises(RequestRefused, match="cancelled"):
            job.future.result(0)
    with pytest.raises(RequestRefused, match="stopped"):
        submit(queue, Busy())


def test_who_waits_for_the_result_of_another_question_holds_no_slot(make_queue: MakeQueue) -> None:
    """With one slot, the question that computes needs it back from those that wait for its result."""
    queue, cache, work = make_queue(slots=1, reserved=0, short_seconds=0.0, turn_seconds=0.0), ResultCache(4), Busy()
    jobs = [submit(queue, lambda job: cache.get("key", lambda: work(job), job)) for _ in range(3)]
    assert work.has_begun.wait(PATIENCE)
    other = submit(queue, lambda _: 7)
    assert other.future.result(PATIENCE) == 7
    work.may_end.set()
    assert [job.future.result(PATIENCE) for job in jobs] == ["done"] * 3


def test_a_shared_result_is_computed_by_the_next_if_the_first_goes_away(make_queue: MakeQueue) -> None:
    queue, cache, first, second = make_queue(slots=2), ResultCache(4), Busy(), Busy()
    jobs = [submit(queue, lambda job, work=work: cache.get("key", lambda: work(job), job)) for work in (first, second)]
    assert first.has_begun.wait(PATIENCE) or second.has_begun.wait(PATIENCE)
    gone, stays = (0, 1) if first.has_begun.is_set() else (1, 0)
    (first, second)[stays].may_end.set()
    jobs[gone].cancel()
    with pytest.raises(RequestRefused, match="cancelled"):
        jobs[gone].future.result(PATIENCE)
    assert jobs[stays].future.result(PATIENCE) == "done"
