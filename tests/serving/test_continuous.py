"""Inputs join others that are computed and leave when they are done; no answer depends on who else asks."""

from __future__ import annotations

import json
import multiprocessing
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from dragoman.inference.engine.native import NativeRunningSearch
from dragoman.inference.load import load
from dragoman.inference.workers import can_fork
from dragoman.serving.batches import BatchedJob, Question
from dragoman.serving.batching import Batcher
from dragoman.serving.channel import Bell, Compute, Drop, Inbox
from dragoman.serving.compute import Item, Refused, Task
from dragoman.serving.continuous import LONGEST, find_continuous
from dragoman.serving.limits import SERVER, Limits
from dragoman.serving.models import Model, Models
from dragoman.serving.workers import Pool

PATIENCE = 60.0
LONG = '{"beam": 2, "min_length": 23}'  # outputs end at the limit of their sources: 24 tokens, or 13 for a short one


@pytest.fixture(scope="module")
def models(native_run: Any) -> Models:
    return Models([Model("run", load(native_run.folder, "cpu", engine="native"))])


class Served:
    """A queue with one worker."""

    def __init__(self, models: Models, forks: bool, limits: Limits) -> None:
        self.batcher = Batcher(limits, 1, None, find_continuous(models))
        self.pool = Pool(models, self.batcher, limits, forks=forks)
        self.pool.start()

    def ask(self, *texts: str, options: str = "{}", verb: Any = "predict", **fields: Any) -> BatchedJob:
        task = Task(verb, "run", options, **fields)
        return self.batcher.submit(
            Question(task, [Item(text, key) for key, text in enumerate(texts)]), seconds=PATIENCE
        )


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each token take a while. It has to come before the workers, which are forked."""
    genuine = NativeRunningSearch.advance

    def advance(self: NativeRunningSearch) -> None:
        time.sleep(0.05)
        genuine(self)

    monkeypatch.setattr(NativeRunningSearch, "advance", advance)


@pytest.fixture(params=[False, True], ids=["thread", "process"])
def served(models: Models, request: pytest.FixtureRequest) -> Iterator[Served]:
    if request.param and not can_fork("cpu"):
        pytest.skip("workers are processes where there is fork")
    made = Served(models, request.param, SERVER)
    yield made
    made.pool.close(5.0)


def texts_of(job: BatchedJob) -> list[str]:
    answers = job.future.result(PATIENCE)
    assert all(isinstance(answer, bytes) for answer in answers), answers
    return [json.loads(answer)["outputs"][0]["text"] for answer in answers if isinstance(answer, bytes)]


def wait_until(is_true: Any) -> None:
    began = time.monotonic()
    while not is_true():
        assert time.monotonic() - began < PATIENCE
        time.sleep(0.005)


def test_a_short_input_that_comes_after_a_long_one_is_answered_before_it_by_the_same_worker(
    slow: None, served: Served
) -> None:
    wait_until(lambda: served.pool.is_ready)
    long = served.ask("abcdefgh" * 10, options=LONG)
    wait_until(lambda: long.began is not None)
    short = served.ask("a", options=LONG)
    assert len(texts_of(short)) == 1
    assert not long.future.done() and short.batches == long.batches
    assert len(texts_of(long)) == 1
    wait_until(lambda: served.batcher.is_idle)


def test_an_answer_is_the_same_whoever_else_asks(served: Served, models: Models) -> None:
    system = models.by_id["run"].system
    texts = ["abc", "hgfed", "", "ab", "cagebad", "hhhhhhhh", "a", "bead", "face", "fed"]
    cases: dict[str, dict[str, Any]] = {
        '{"beam": 4, "n_best": 2}': {"beam": 4, "n_best": 2},
        '{"sample": true, "samples": 2, "seed": 3}': {"sample": True, "samples": 2, "seed": 3},
        '{"attention": true}': {"attention": True},
    }
    expected = {
        options: [[output.text for output in system.predict([text], keys=[0], **given)[0].outputs] for text in texts]
        for options, given in cases.items()
    }
    wrong: list[Any] = []

    def client(number: int) -> None:
        for turn in range(6):
            place, options = (number + turn) % len(texts), [*cases][(number + turn) % len(cases)]
            (answer,) = served.ask(texts[place], options=options).future.result(PATIENCE)
            assert isinstance(answer, bytes)
            found = [output["text"] for output in json.loads(answer)["outputs"]]
            if found != expected[options][place]:
                wrong.append((options, texts[place], found))

    threads = [threading.Thread(target=client, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert not wrong and served.batcher.is_idle


def test_no_task_starves_beside_one_that_is_asked_all_the_time(served: Served) -> None:
    is_over = threading.Event()

    def keep_asking() -> None:
        while not is_over.is_set():
            texts_of(served.ask("abc"))

    threads = [threading.Thread(target=keep_asking) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for turn in range(3):
            assert len(texts_of(served.ask("hgf", options=json.dumps({"beam": 2 + turn})))) == 1
    finally:
        is_over.set()
        for thread in threads:
            thread.join(PATIENCE)


def test_an_input_with_a_mistake_is_refused_and_the_others_are_answered(served: Served) -> None:
    wrong: Any = {"no such source": "a"}
    answers = served.ask("abc", wrong, "ab", "h" * 15_000).future.result(PATIENCE)
    assert isinstance(answers[1], Refused) and answers[1].status == 400
    assert [json.loads(answers[place]).get("error") for place in (0, 2)] == [None, None]  # type: ignore[arg-type]
    assert "15,000 characters" in json.loads(answers[3])["error"]  # type: ignore[arg-type]
    refused = served.ask("abc", options='{"beam": 0}').future.result(PATIENCE)
    assert isinstance(refused[0], Refused) and refused[0].status == 400


def test_a_question_that_is_cancelled_leaves_and_its_worker_goes_on(slow: None, served: Served) -> None:
    wait_until(lambda: served.pool.is_ready)
    gone = served.ask("abcdefgh" * 10, "abcdefgh" * 10, options=LONG)
    other = served.ask("abcdefgh" * 10, options=LONG)
    wait_until(lambda: gone.began is not None and other.began is not None)
    assert served.batcher.computing == 3
    gone.cancel()
    wait_until(lambda: served.batcher.computing == 1)  # at the next token
    assert not other.future.done()
    assert len(texts_of(other)) == 1
    assert all(isinstance(answer, Refused) for answer in gone.future.result(0))
    wait_until(lambda: served.batcher.is_idle)


@pytest.mark.skipif(not can_fork("cpu"), reason="workers are processes where there is fork")
def test_a_worker_that_is_killed_in_a_continuous_batch_is_replaced(slow: None, models: Models) -> None:
    served = Served(models, True, SERVER)
    try:
        wait_until(lambda: served.pool.is_ready)
        job = served.ask("abcdefgh" * 10, options=LONG)
        wait_until(lambda: job.began is not None)
        worker: Any = served.pool.workers[0]
        worker.process.kill()
        (answer,) = job.future.result(PATIENCE)
        assert isinstance(answer, Refused) and answer.status == 503
        assert len(texts_of(served.ask("abc"))) == 1
    finally:
        served.pool.close(5.0)


def test_tasks_that_need_whole_batches_have_them(models: Models, served: Served) -> None:
    is_continuous = find_continuous(models)
    joining: list[Any] = [{}, {"beam": 5}, {"prefix": "a"}, {"attention": True}, {"abstain": 0.5}, {"sample": True}]
    for options in joining:
        assert is_continuous(Task("predict", "run", json.dumps(options))), options
    assert is_continuous(Task("translate", "run"))
    alone: list[Any] = [
        {"alternatives": 2},
        {"lexicon": ["a"]},
        {"match": "a+"},
        {"beam": 0},
        {"prefix": "a" * LONGEST},
    ]
    for options in alone:
        assert not is_continuous(Task("predict", "run", json.dumps(options))), options
    assert not is_continuous(Task("score", "run"))
    assert not is_continuous(Task("predict", "run", '{"beam": 1}', is_followed=True))
    assert len(texts_of(served.ask("abc", "ab", options='{"prefix": "a"}'))) == 2


def test_the_next_batch_may_come_before_a_worker_has_noticed_the_end_of_the_last() -> None:
    ours, theirs = multiprocessing.Pipe()
    inbox, task = Inbox(theirs), Task("predict", "run")
    first, more, second = (Compute(number, task, {number: Item(str(number))}, True) for number in (1, 1, 2))
    for message in (Drop(7, [0]), first, more._replace(items={5: Item("5")}), Drop(1, [1]), second, Drop(2, [2])):
        ours.send(message)
    assert inbox.wait() == first
    assert inbox.receive() == ({5: Item("5")}, [1])
    assert inbox.receive() == ({}, [])
    assert inbox.wait() == second and inbox.receive() == ({}, [2]) and not inbox.is_stopped()
    ours.send(Drop(1, None))
    assert not inbox.is_stopped()
    ours.send(Drop(2, None))
    assert inbox.is_stopped()


def test_a_bell_rings_once_until_it_is_silenced() -> None:
    bell = Bell()
    bell._ours.setblocking(False)
    bell.ring()
    bell.ring()
    bell.silence()
    with pytest.raises(BlockingIOError):
        bell.silence()
