"""SIGKILL at random times, many of them inside a save: every run resumes to the weights of one never disturbed.

The runs are children that are forked with everything loaded, so most of their life is training.
``test_kill.py`` kills whole programs, imports included.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.training.checkpoints.checkpoint import read_progress

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

TRAINING: dict[str, Any] = {
    "max_updates": 30,
    "validate_every": 6,
    "save_every": 1e-9,
    "log_every": 5,
    "average": 2,
    "max_epochs": 99,
}


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def is_saving(folder: Path) -> bool:
    """Return whether a save is under way, or was when the process died."""
    return any(name.endswith(".partial") for place in (folder, folder / "snapshots") if place.exists()
               for name in os.listdir(place))  # fmt: skip


def wait_for_update(child: Any, folder: Path, update: int) -> None:
    """Wait until a checkpoint of this update or a later one is there, or the child has ended."""
    path = folder / "checkpoint.safetensors"
    while not child.poll() and (read_progress(path).update if path.exists() else 0) < update:
        time.sleep(0.002)


def test_killed_runs_come_to_the_same_weights(
    tmp_path: Path, start: Callable[..., Any], pairs_file: Callable[..., Path], tiny_settings: dict[str, Any],
    as_flags: Callable[[dict[str, Any]], list[str]], amount: Callable[[int, int], int],
    record: Callable[[str, dict[str, Any]], None],
) -> None:  # fmt: skip
    pairs = pairs_file(tmp_path / "pairs.tsv", 80)
    flags = as_flags({**tiny_settings, "training": {**tiny_settings["training"], **TRAINING}})

    def begin(folder: Path) -> Any:
        return start(tmp_path / "output", "train", pairs, "--out", folder, "--quiet", *flags)

    whole = begin(tmp_path / "whole").finish(120)
    assert whole.code == 0, whole.text
    wanted, kills, inside = digest(tmp_path / "whole"), 0, 0
    total, number = int(os.environ.get("DRAGOMAN_KILLS") or amount(2, 200)), 0
    while kills < total:
        number += 1
        chance = random.Random(number)
        folder = tmp_path / f"run-{number}"
        child = begin(folder)
        if number % 4 == 1:  # at a random moment of its whole life, if all lives take as long as the first one
            time.sleep(chance.uniform(0.05, 0.95) * whole.seconds)
        else:  # at a random update, however slow the machine is now
            wait_for_update(child, folder, chance.randrange(TRAINING["max_updates"]))
            time.sleep(chance.uniform(0, 0.05))
        if number % 2 == 0:  # inside a save, if it can be met
            while not child.poll() and not (folder.exists() and is_saving(folder)):
                pass
        child.kill()
        if child.code == 0:  # it had finished before: no kill
            continue
        kills += 1
        inside += folder.exists() and is_saving(folder)
        print(f"{kills} of {total} kills, {inside} inside a save", flush=True)
        done = begin(folder).finish(240)
        assert done.code == 0, done.text
        assert digest(folder) == wanted, number
        lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        updates = [event["update"] for event in map(json.loads, lines) if event["event"] == "stepped"]
        assert updates == list(range(5, 31, 5)), updates
        assert not [path for path in folder.rglob(".*.partial") if path.name != ".report.html.partial"]
    record("kills", {"kills": kills, "inside a save": inside, "same weights": kills})
    assert inside >= amount(0, total // 4)
