"""Runs that the views are tested on: the tiny recurrent one, and a Transformer with two layers of two heads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dragoman.system import System

HEADS: dict[str, Any] = {
    "source": {"embedding": 16},
    "encoder": {"kind": "transformer", "width": 16, "layers": 2, "heads": 2, "feed_forward": 32},
    "decoder": {"kind": "transformer", "width": 16, "layers": 3, "heads": 2, "feed_forward": 32},
    "training": {"threads": 1, "batch_tokens": 96, "max_updates": 20, "average": 1, "log_every": 10},
}


@pytest.fixture(scope="session")
def recurrent(tiny_run: Any) -> System:
    return System.load(tiny_run.folder, "cpu")


@pytest.fixture(scope="session")
def heads_folder(tiny_run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from dragoman.workflow import train

    place = tmp_path_factory.mktemp("heads") / "heads"
    train(tiny_run.pairs, out=place, settings=HEADS)
    return place


@pytest.fixture(scope="session")
def heads(heads_folder: Path) -> System:
    return System.load(heads_folder, "cpu")
