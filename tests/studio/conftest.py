"""Runs to test the views on: a recurrent one, and a Transformer with layers and heads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dragoman.inference.system import System

HEADS: dict[str, Any] = {
    "source": {"embedding": 16},
    "encoder": {"kind": "transformer", "width": 16, "layers": 2, "heads": 2, "feed_forward": 32},
    "decoder": {"kind": "transformer", "width": 16, "layers": 3, "heads": 2, "feed_forward": 32},
    "training": {"threads": 1, "batch_tokens": 96, "max_updates": 20, "average": 1, "log_every": 10},
}


def run_in_own_thread(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine to its end in a thread of its own.

    The browser tests may have left an event loop running in the thread of the tests: playwright's synchronous
    interface keeps one for as long as its browser is open, and ``asyncio.run`` refuses to start a second one there.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


@pytest.fixture(scope="session")
def run_async() -> Callable[[Coroutine[Any, Any, Any]], Any]:
    return run_in_own_thread


@pytest.fixture(scope="session")
def recurrent(tiny_run: Any) -> System:
    return System.load(tiny_run.folder, "cpu")


@pytest.fixture(scope="session")
def heads_folder(tiny_run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from dragoman.training.run import train

    place = tmp_path_factory.mktemp("heads") / "heads"
    train(tiny_run.pairs, out=place, settings=HEADS)
    return place


@pytest.fixture(scope="session")
def heads(heads_folder: Path) -> System:
    return System.load(heads_folder, "cpu")
