"""Requests about one run are answered side by side, and nothing is loaded or computed twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dragoman.inference.system import System
from dragoman.studio import endpoints, records
from dragoman.studio.cache import ResultCache
from dragoman.studio.endpoints import Studio
from dragoman.studio.library import Library
from dragoman.studio.uploads import Uploads

PATIENCE = 60  # seconds until a test gives up waiting for another thread


@pytest.fixture
def studio(tiny_run: Any) -> Iterator[Studio]:
    uploads = Uploads()
    yield Studio(Library([tiny_run.folder], "cpu"), uploads)
    uploads.close()


def test_two_threads_predict_on_one_run_at_the_same_time(
    studio: Studio, recurrent: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both threads have to be inside the search before either goes on."""
    together = threading.Barrier(2)
    plain = endpoints.inspect

    def wait_and_inspect(*arguments: Any) -> Any:
        together.wait(PATIENCE)
        return plain(*arguments)

    monkeypatch.setattr(endpoints, "inspect", wait_and_inspect)
    texts = ["abcd", "hgfe"]
    with ThreadPoolExecutor(2) as pool:
        predictions = list(pool.map(lambda text: studio.predict("run", records.PredictRequest(input=text)), texts))
    assert [prediction.outputs[0].text for prediction in predictions] == [recurrent(text) for text in texts]


def test_a_run_is_loaded_once_for_all_threads(studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[Any] = []
    plain = System.load

    def slow_load(*arguments: Any) -> System:
        loads.append(arguments)
        time.sleep(0.2)
        return plain(*arguments)

    monkeypatch.setattr(System, "load", slow_load)
    with ThreadPoolExecutor(4) as pool:
        systems = list(pool.map(studio.library.system, ["run"] * 4))
    assert len(loads) == 1 and all(system is systems[0] for system in systems)


def test_a_run_is_loaded_again_when_its_weights_change(studio: Studio) -> None:
    entry = studio.library.entry("run")
    first = studio.library.load("run")
    assert studio.library.load("run") is first
    entry.loaded = type(first)(first.system, first.modified - 1, first.results)
    second = studio.library.load("run")
    assert second.system is not first.system and second.results is not first.results


def test_a_result_is_computed_once_for_all_threads() -> None:
    cache = ResultCache(4)
    started, finish = threading.Event(), threading.Event()
    calls: list[int] = []

    def compute() -> int:
        calls.append(1)
        started.set()
        assert finish.wait(PATIENCE)
        return 7

    with ThreadPoolExecutor(3) as pool:
        results = [pool.submit(cache.get, "key", compute) for _ in range(3)]
        assert started.wait(PATIENCE)
        assert cache.get("other", lambda: 8) == 8  # does not wait for the first
        finish.set()
        assert [result.result(PATIENCE) for result in results] == [7, 7, 7]
    assert len(calls) == 1


def test_a_cache_keeps_the_results_used_last_and_no_errors() -> None:
    cache = ResultCache(2)
    for key in ("a", "b", "a", "c"):  # "b" was used before "a"
        cache.get(key, lambda: 1)
    assert [cache.get(key, lambda: 2) for key in ("a", "c", "b")] == [1, 1, 2]

    def fail() -> int:
        raise ValueError("no result")

    with pytest.raises(ValueError, match="no result"):
        cache.get("d", fail)
    assert cache.get("d", lambda: 3) == 3
