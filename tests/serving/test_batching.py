"""Inputs of many questions are computed together, fairly, within bounds; what nobody waits for ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from dragoman.serving.batches import Batch, BatchedJob, Question
from dragoman.serving.batching import Batcher
from dragoman.serving.compute import Item, Refused, Task
from dragoman.serving.limits import Limits, RequestRefused

PATIENCE = 60.0


def ask(batcher: Batcher, *texts: str, task: str = "run", **options: Any) -> BatchedJob:
    question = Question(Task("predict", task), [Item(text, key) for key, text in enumerate(texts)], **options)
    return batcher.submit(question, seconds=PATIENCE)


def texts(batch: Batch) -> list[Any]:
    return [item.source for item in batch.items.values()]


def answer(batcher: Batcher, batch: Batch) -> None:
    batcher.deliver(batch, {index: str(item.source).upper().encode() for index, item in batch.items.items()})


def is_abandoned(batch: Batch) -> bool:
    return batch.abandoned is not None


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
        batch = take(batcher)
        taken.append(texts(batch))
        assert len(taken[-1]) <= 4
        answer(batcher, batch)
    assert "a" in taken[0] and short.future.done()
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
    assert not stopped and not is_abandoned(batch)
    second.cancel()
    assert stopped and is_abandoned(batch)
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
            sizes.append(len(batch.open))
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


# ---- continuous batches


def make_continuous(workers: int = 1, **limits: Any) -> Batcher:
    chosen = Limits(**{"batch": 4, "window": PATIENCE, "waiting": 100, "turn": PATIENCE} | limits)
    return Batcher(chosen, workers, is_continuous=lambda task: task.model != "whole")


def answer_one(batcher: Batcher, batch: Batch, text: str) -> None:
    (index,) = [index for index, item in batch.items.items() if item.source == text]
    batcher.deliver(batch, {index: text.upper().encode()})


def entered(batcher: Batcher, batch: Batch) -> list[Any]:
    added, _ = batcher.exchange(batch)
    return [item.source for item in added.values()]


def test_an_input_enters_a_batch_that_is_computed_and_is_answered_before_the_others() -> None:
    batcher = make_continuous()
    long = ask(batcher, "long")
    batch = take(batcher)
    rung: list[bool] = []
    batch.wake = lambda: rung.append(True)
    short = ask(batcher, "short")
    assert rung and entered(batcher, batch) == ["short"] and entered(batcher, batch) == []
    answer_one(batcher, batch, "short")
    assert short.future.result(0) == [b"SHORT"] and not long.future.done() and batcher.computing == 1
    answer_one(batcher, batch, "long")
    assert long.future.result(0) == [b"LONG"]
    assert entered(batcher, batch) == [] and batcher.is_idle  # it has ended
    ask(batcher, "later")
    assert entered(batcher, batch) == [] and texts(take(batcher)) == ["later"]


def test_a_continuous_batch_has_no_more_inputs_than_are_allowed() -> None:
    batcher = make_continuous()
    job = ask(batcher, *"abcdefgh")
    batch = take(batcher)
    assert texts(batch) == [*"abcd"] and entered(batcher, batch) == []
    answer_one(batcher, batch, "b")
    assert entered(batcher, batch) == ["e"] and len(batch.open) == 4
    while batch.open:
        answer(batcher, batch)
        batcher.exchange(batch)
    assert job.future.result(0) == [text.encode() for text in "ABCDEFGH"]


def test_nothing_enters_while_a_task_waits_that_nobody_computes() -> None:
    batcher = make_continuous()
    ask(batcher, "a")
    batch = take(batcher)
    other = ask(batcher, "x", task="other")
    ask(batcher, "b")
    assert entered(batcher, batch) == []
    answer(batcher, batch)
    assert entered(batcher, batch) == []  # so it has ended
    second = take(batcher)
    assert second.task == other.question.task and texts(second) == ["x"]


@pytest.mark.parametrize(("turn", "expected"), [(PATIENCE, ["b"]), (0.0, [])])
def test_a_task_that_has_waited_for_its_turn_ends_the_batches_of_others(turn: float, expected: list[str]) -> None:
    batcher = make_continuous(workers=2, turn=turn, batch=1)
    ask(batcher, "x", task="other")
    full = take(batcher)
    assert full.task.model == "other"
    ask(batcher, "a")
    batch = take(batcher)
    ask(batcher, "y", task="other")  # another worker computes this task, and has no room
    ask(batcher, "b")
    answer(batcher, batch)
    assert entered(batcher, batch) == expected
    if not expected:
        assert take(batcher).task.model == "other"


def test_no_continuous_task_starves_whoever_asks_all_the_time() -> None:
    batcher = make_continuous(batch=2)
    for number in range(2):
        ask(batcher, f"{number}")
    taken = 0
    waits = None
    batch = take(batcher)
    while taken < 50:
        ask(batcher, f"next {taken}")
        if taken == 10:
            waits = ask(batcher, "x", task="other")
        oldest = min(batch.open)
        batcher.deliver(batch, {oldest: b""})
        batcher.exchange(batch)
        taken += 1
        if not batch.open:
            batch = take(batcher)
            if "x" in texts(batch):
                break
    assert waits is not None and waits.began is not None and taken <= 14  # two batches


def test_workers_share_the_inputs_of_a_task() -> None:
    batcher = make_continuous(workers=2, batch=32)
    ask(batcher, *"abcdef")
    first = take(batcher)
    assert len(first.open) == 6  # nobody else could take some
    second_job = ask(batcher, "g")
    second = take(batcher)
    assert texts(second) == ["g"] and second_job.began is not None
    ask(batcher, "h")
    assert entered(batcher, first) == [] and entered(batcher, second) == ["h"]


def test_what_nobody_waits_for_leaves_a_continuous_batch() -> None:
    batcher = make_continuous()
    gone, stays = ask(batcher, "a", "b"), ask(batcher, "c")
    batch = take(batcher)
    rung: list[bool] = []
    batch.wake = lambda: rung.append(True)
    gone.cancel()
    assert rung and batch.abandoned is None
    ask(batcher, "d")
    added, told = batcher.exchange(batch)
    assert [batch.items[index].source for index in sorted(told)] == ["a", "b"]
    assert not added  # a worker that does not listen gets nothing more
    batcher.deliver(batch, dict.fromkeys(told, Refused(503, "gone")))
    assert entered(batcher, batch) == ["d"] and batcher.exchange(batch) == ({}, [])
    answer_one(batcher, batch, "c")
    assert stays.future.result(0) == [b"C"]


def test_a_continuous_batch_that_nobody_waits_for_is_abandoned_until_more_enters() -> None:
    batcher = make_continuous()
    job = ask(batcher, "a")
    batch = take(batcher)
    job.cancel()
    assert batch.abandoned is not None
    ask(batcher, "b")
    _, told = batcher.exchange(batch)
    batcher.deliver(batch, dict.fromkeys(told, Refused(503, "gone")))
    assert entered(batcher, batch) == ["b"] and batch.abandoned is None


def test_a_worker_that_ends_fails_what_is_in_its_continuous_batch() -> None:
    batcher = make_continuous()
    first = ask(batcher, "a")
    batch = take(batcher)
    second = ask(batcher, "b")
    batcher.exchange(batch)
    batcher.fail(batch, 503, "gone")
    assert first.future.result(0) == second.future.result(0) == [Refused(503, "gone")] and batcher.is_idle


def test_tasks_of_both_kinds_take_turns() -> None:
    batcher = make_continuous(window=0.0)
    ask(batcher, "a")
    batch = take(batcher)
    ask(batcher, "w", "v", task="whole")
    assert entered(batcher, batch) == []
    answer(batcher, batch)
    batcher.exchange(batch)
    whole = take(batcher)
    assert texts(whole) == ["w", "v"] and not whole.is_continuous
    answer(batcher, whole)
    assert batcher.is_idle


def test_many_threads_lose_and_mix_up_nothing_in_continuous_batches() -> None:
    batcher = make_continuous(workers=3, batch=5, turn=0.001, waiting=10_000, window=0.001)
    most: list[int] = []

    def work() -> None:
        while (batch := batcher.take()) is not None:
            while batch.open:
                most.append(len(batch.open))
                if batch.is_continuous:
                    index = min(batch.open)
                    batcher.deliver(batch, {index: str(batch.items[index].source).encode()})
                    batcher.exchange(batch)
                else:
                    answer(batcher, batch)

    failures: list[BaseException] = []

    def client(number: int) -> None:
        try:
            for turn in range(30):
                task = ("one", "other", "whole")[(number + turn) % 3]
                job = ask(batcher, *(f"{number}-{turn}-{place}" for place in range(turn % 4)), task=task)
                if turn % 7 == 3:
                    job.cancel()
                    continue
                expected = [str(item.source).encode() for item in job.question.items]
                assert job.future.result(PATIENCE) == expected
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=work) for _ in range(3)]
    clients = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in (*workers, *clients):
        thread.start()
    for thread in clients:
        thread.join(PATIENCE)
    batcher.close()
    for thread in workers:
        thread.join(PATIENCE)
    assert not failures and batcher.is_idle and 1 < max(most) <= 5
