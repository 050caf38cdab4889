"""Inputs of many questions are computed together, fairly, within bounds; what nobody waits for ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.serving.batching import Batch, BatchedJob, Batcher, Question
from dragoman.serving.compute import Item, Refused, Task
from dragoman.serving.limits import Limits, RequestRefused

PATIENCE = 60.0


def ask(batcher: Batcher, *texts: str, task: str = "run", **options: Any) -> BatchedJob:
    question = Question(Task("predict", task), [Item(text, key) for key, text in enumerate(texts)], **options)
    return batcher.submit(question, seconds=PATIENCE)


def texts(batch: Batch) -> list[Any]:
    return [item.source for item in batch.items]


def answer(batcher: Batcher, batch: Batch) -> None:
    batcher.finish(batch, [str(text).upper().encode() for text in texts(batch)])


def take(batcher: Batcher) -> Batch:
    batch = batcher.take()
    assert batch is not None
    return batch


def make(**limits: Any) -> Batcher:
    return Batcher(Limits(**{"batch": 4, "window": 0.0, "waiting": 100} | limits))


def test_inputs_of_several_questions_make_a_batch_and_each_gets_its_own_answers() -> None:
    batcher = make()
    jobs = [ask(batcher, "a", "b"), ask(batcher, "c"), ask(batcher, "d", task="other")]
    first = take(batcher)
    assert sorted(texts(first)) == ["a", "b", "c"] and first.task.model == "run"
    second = take(batcher)
    answer(batcher, second)
    answer(batcher, first)
    assert [job.future.result(0) for job in jobs] == [[b"A", b"B"], [b"C"], [b"D"]]
    assert batcher.is_idle


def test_a_question_with_many_inputs_does_not_keep_a_short_one_waiting() -> None:
    batcher = make()
    long = ask(batcher, *map(str, range(10)))
    short = ask(batcher, "a")
    taken = []
    while not long.future.done():
        taken.append(take(batcher))
        assert len(texts(taken[-1])) <= 4 and len({id(job) for job in batcher._waiting}) == len(batcher._waiting)
        answer(batcher, taken[-1])
    assert "a" in texts(taken[0]) and short.future.done()
    assert long.future.result(0) == [str(number).encode() for number in range(10)]


def test_no_task_starves() -> None:
    batcher = make(batch=1)
    ask(batcher, "a", "b", "c")
    ask(batcher, "x", task="other")
    assert [texts(take(batcher)) for _ in range(4)] == [["a"], ["x"], ["b"], ["c"]]


def test_too_many_inputs_are_refused_and_told_when_to_ask_again() -> None:
    batcher = make(waiting=3)
    ask(batcher, *"abcdef")  # nobody is before it
    with pytest.raises(RequestRefused) as refused:
        ask(batcher, "g")
    assert refused.value.status == 429 and refused.value.headers["Retry-After"].isdecimal()
    answer(batcher, take(batcher))
    answer(batcher, take(batcher))
    ask(batcher, "g")


def test_a_client_that_goes_away_frees_its_place() -> None:
    batcher = make(waiting=1)
    job = ask(batcher, "a")
    job.cancel()
    assert batcher.is_idle
    ask(batcher, "b")
    assert texts(take(batcher)) == ["b"]


def test_a_batch_is_stopped_when_nobody_waits_for_it() -> None:
    batcher = make()
    first, second = ask(batcher, "a"), ask(batcher, "b")
    batch = take(batcher)
    stopped: list[bool] = []
    batch.stop = lambda: stopped.append(True)
    first.cancel()
    assert not stopped and batch.abandoned is None
    second.cancel()
    assert stopped and batch.abandoned is not None
    answer(batcher, batch)  # what comes too late harms nobody
    assert not first.future.done() or first.is_cancelled


def test_a_deadline_says_whether_computing_had_begun() -> None:
    batcher = make()
    job = ask(batcher, "a")
    assert job.too_late().status == 503 and job.too_late().retry_after
    take(batcher)
    assert job.too_late().status == 504


def test_a_worker_that_ends_fails_its_batch_only() -> None:
    batcher = make(batch=1)
    first, second = ask(batcher, "a"), ask(batcher, "b")
    batcher.fail(take(batcher), 503, "gone")
    answer(batcher, take(batcher))
    assert first.future.result(0) == [Refused(503, "gone")] and second.future.result(0) == [b"B"]


def test_a_batch_waits_for_as_many_inputs_as_the_last_one_had() -> None:
    batcher = make(window=PATIENCE)
    for text in "abc":
        ask(batcher, text)
    assert len(texts(take(batcher))) == 3
    found: list[Batch] = []
    thread = threading.Thread(target=lambda: found.append(take(batcher)))
    thread.start()
    for text in "def":
        assert not found
        ask(batcher, text)
    thread.join(PATIENCE)
    assert sorted(texts(found[0])) == ["d", "e", "f"]


def test_a_closed_queue_gives_what_is_left_and_takes_nothing() -> None:
    batcher = make()
    ask(batcher, "a")
    batcher.close()
    with pytest.raises(RequestRefused) as refused:
        ask(batcher, "b")
    assert refused.value.status == 503
    assert texts(take(batcher)) == ["a"] and batcher.take() is None


def test_many_threads_lose_and_mix_up_nothing() -> None:
    batcher = Batcher(Limits(batch=5, window=0.001, waiting=10_000))
    sizes: list[int] = []

    def work() -> None:
        while (batch := batcher.take()) is not None:
            sizes.append(len(batch.members))
            answer(batcher, batch)

    def client(number: int, asked: Callable[[BatchedJob], None]) -> None:
        for turn in range(20):
            asked(ask(batcher, *(f"{number}-{turn}-{place}" for place in range(turn % 4))))

    def check(job: BatchedJob) -> None:
        expected = [str(item.source).encode() for item in job.question.items]
        assert job.future.result(PATIENCE) == expected

    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            client(number, check)
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work) for _ in range(3)]
    clients = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in (*workers, *clients):
        thread.start()
    for thread in clients:
        thread.join(PATIENCE)
    batcher.close()
    for thread in workers:
        thread.join(PATIENCE)
    assert not failures and sum(sizes) == 8 * 5 * (0 + 1 + 2 + 3) and max(sizes) > 1
