"""Several processes that answer as one does: the same predictions in the same order, and errors that arrive."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

import dragoman
from dragoman.errors import UserError
from dragoman.inference.batches import answer_in_turn
from dragoman.inference.system import System
from dragoman.inference.workers import answer_in_workers, choose_run

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no fork")


@pytest.fixture(scope="module")
def system(tiny_run: Any) -> System:
    return dragoman.load(tiny_run.folder, engine="torch")


def test_the_answers_are_those_of_one_process(system: Any) -> None:
    texts = ["abc", "", "ba", *("ab" * length for length in range(1, 12)), "cab"]
    alone = system.predict(texts, batch=2, attention=False)
    together = system.predict(texts, batch=2, attention=False, workers=3)
    assert [(one.source, one.text, one.log_probs) for one in together] == [
        (one.source, one.text, one.log_probs) for one in alone
    ]
    sampled = {"sample": True, "seed": 3, "batch": 2}
    assert [one.text for one in system.predict(texts, workers=2, **sampled)] == [
        one.text for one in system.predict(texts, **sampled)
    ]


def test_how_many_workers_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragoman.inference.workers.available_cores", lambda: 4)
    assert choose_run(None, 3 * 64, 64, "cpu") is answer_in_turn, "too little work for two"
    assert choose_run(None, 4 * 64, 64, "cpu").args == (2,)  # type: ignore[attr-defined]
    assert choose_run(None, 90 * 64, 64, "cpu").args == (4,)  # type: ignore[attr-defined]
    assert choose_run(3, 2 * 64, 64, "cpu").args == (2,)  # type: ignore[attr-defined]
    assert choose_run(3, 900, 64, "cuda:0") is answer_in_turn
    for wrong in (0, -1, 1.5, True, "2"):
        with pytest.raises(UserError, match="workers is the number of processes"):
            choose_run(wrong, 1, 1, "cpu")  # type: ignore[arg-type]


def living(pids: Sequence[int]) -> list[int]:
    """Which of some processes still exist, after they have had some time to end."""

    def exists(pid: int) -> bool:
        return os.path.exists(f"/proc/{pid}")

    deadline = time.monotonic() + 10
    while any(map(exists, pids)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return [pid for pid in pids if exists(pid)]


def run(answer: Any, batches: int = 6) -> Iterator[Mapping[int, Any]]:
    return answer_in_workers(2, [[number] for number in range(batches)], answer)


def test_an_error_of_a_worker_is_raised_and_nothing_is_left_behind() -> None:
    class Unpicklable(Exception):
        def __init__(self, one: int, other: int) -> None:
            super().__init__("cannot be made again")

    def fails(indices: Sequence[int]) -> dict[int, Any]:
        if indices[0] == 4:
            raise UserError("no such thing") if mode == "user" else Unpicklable(1, 2)
        return {indices[0]: os.getpid()}

    for mode, kind in (("user", UserError), ("other", RuntimeError)):
        pids: list[int] = []
        with pytest.raises(kind, match="no such thing" if mode == "user" else "cannot be made again"):
            pids.extend(pid for answered in run(fails) for pid in answered.values())
        assert pids and os.getpid() not in pids and not living(pids)


def test_a_worker_that_is_killed_is_noticed() -> None:
    def dies(indices: Sequence[int]) -> dict[int, Any]:
        os.kill(os.getpid(), signal.SIGKILL)
        return {}

    with pytest.raises(UserError, match="SIGKILL before it had answered"):
        list(run(dies))


def test_who_stops_early_ends_the_workers() -> None:
    answers = run(lambda indices: {indices[0]: os.getpid()}, batches=50)
    pids = [*next(answers).values(), *next(answers).values()]
    answers.close()  # type: ignore[attr-defined]
    assert not living(pids)
