"""SIGKILL at random moments, then the same command again: the same weights, bit for bit, as a run never disturbed.

The normal suite kills one run three times over. ``DRAGOMAN_KILLS=20 pytest -s tests/faults`` makes twenty more runs,
each killed once at a random moment of its whole life, imports and final evaluation included, and then finished.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dragoman.runs.folder import CHECKPOINTS
from dragoman.training.checkpoints.checkpoint import read_progress

KILLS = int(os.environ.get("DRAGOMAN_KILLS", "0"))

# Checkpoints and validations come so often that a kill may fall into any of them.
TRAINING: dict[str, Any] = {
    "max_updates": 180, "validate_every": 12, "save_every": 0.05, "log_every": 5, "batch_tokens": 64, "accumulate": 2,
    "average": 3, "patience": 1000, "max_epochs": 1000,
}  # fmt: skip


@dataclass
class Victim:
    """One run that can be started, killed and finished."""

    command: list[str]
    environment: dict[str, str]
    folder: Path

    def start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self.command,
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def finish(self) -> float:
        began = time.monotonic()
        process = self.start()
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err.decode()
        return time.monotonic() - began

    def kill_after(self, seconds: float) -> bool:
        """True if it was still alive."""
        process = self.start()
        try:
            process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return True
        assert process.returncode == 0
        return False

    def kill_in_training(self, chance: random.Random) -> bool:
        """Wait until it trains, then a moment more. True if it was still alive."""
        process = self.start()
        before = self.checkpoint_time()
        while process.poll() is None and self.checkpoint_time() == before:
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.3))
        process.kill()
        process.communicate()
        return process.returncode != 0

    def checkpoint_time(self) -> int:
        path = self.folder / "checkpoint.safetensors"
        return path.stat().st_mtime_ns if path.exists() else 0

    def state(self) -> str:
        """How far it had come, to be shown with pytest -s."""
        metrics, checkpoint = self.folder / "metrics.jsonl", self.folder / "checkpoint.safetensors"
        if not metrics.exists():
            return "before the first update"
        seen = metrics.read_text(encoding="utf-8").splitlines()
        last = json.loads(seen[-1]) if seen else {"event": "nothing", "update": 0}
        kept = read_progress(checkpoint).update if checkpoint.exists() else 0
        return f"after {last['event']} {last['update']}, checkpoint of update {kept}"

    def digest(self) -> str:
        return hashlib.sha256((self.folder / "model.safetensors").read_bytes()).hexdigest()

    def check(self) -> None:
        """What a kill must not leave behind once the run is finished."""
        lines = (self.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        events = [json.loads(line) for line in lines]
        for kind in ("started", "stepped", "validated", "stopped"):
            updates = [event["update"] for event in events if event["event"] == kind]
            assert updates == sorted(set(updates)), kind
        assert [event["update"] for event in events if event["event"] == "stepped"] == list(range(5, 181, 5))
        assert [event["update"] for event in events if event["event"] == "validated"] == list(range(12, 181, 12))
        assert events[-1]["event"] == "stopped" and events[-1]["finished"]
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        kinds = {".json", ".jsonl", ".safetensors", ".md", ".html"}  # the last is the report, where the page is built
        assert {path.suffix for path in files} <= kinds
        kept = {entry[2] for name in CHECKPOINTS for entry in read_progress(self.folder / name).snapshots}
        assert {float(path.stem) for path in self.folder.glob("snapshots/*")} == kept
        assert {"README.md", "evaluation.json"} <= {path.name for path in files}


@pytest.fixture(scope="module")
def victim(
    tmp_path_factory: pytest.TempPathFactory, pairs_file: Callable[..., Path], tiny_settings: dict[str, Any],
    as_flags: Callable[[dict[str, Any]], list[str]], environment: dict[str, str],
) -> Callable[..., Victim]:  # fmt: skip
    place = tmp_path_factory.mktemp("kill")
    pairs = pairs_file(place / "pairs.tsv", 120)
    settings = {**tiny_settings, "training": {**tiny_settings["training"], **TRAINING}}

    def make(name: str, running: bool = False) -> Victim:
        """``running``: a language model of one text, whose state is carried from update to update."""
        folder = place / name
        chosen, data = settings, pairs
        if running:
            chosen = {
                "decoder": settings["decoder"],
                "training": {**settings["training"], "chunk": 7, "max_updates": 60},
            }
            chosen |= {"preset": "lm-rnn", "data": {"running": "true"}}
            data = place / "text.txt"
            data.write_text(pairs.read_text(encoding="utf-8").replace("\t", "\n"), encoding="utf-8")
        options = ["--out", str(folder), *as_flags(chosen)]
        return Victim([sys.executable, "-m", "dragoman", "train", str(data), *options], environment, folder)

    return make


@pytest.fixture(scope="module")
def undisturbed(victim: Callable[..., Victim]) -> tuple[str, float]:
    """The digest of the weights, and how long the run takes."""
    whole = victim("whole")
    seconds = whole.finish()
    whole.check()
    return whole.digest(), seconds


def test_a_run_killed_again_and_again(victim: Callable[..., Victim], undisturbed: tuple[str, float]) -> None:
    chance = random.Random(5)
    run = victim("again")
    kills = [run.kill_in_training(chance) for _ in range(3)]
    assert kills[0]  # later ones may find it finished, on a fast machine
    run.finish()
    run.check()
    assert run.digest() == undisturbed[0]


def test_running_text_killed_between_two_chunks(victim: Callable[..., Victim]) -> None:
    whole, run = victim("whole-text", running=True), victim("text", running=True)
    whole.finish()
    assert run.kill_in_training(random.Random(7))
    run.finish()
    assert run.digest() == whole.digest()


@pytest.mark.parametrize("number", range(KILLS))
def test_a_run_killed_at_any_moment(number: int, victim: Callable[..., Victim], undisturbed: tuple[str, float]) -> None:
    wanted, seconds = undisturbed
    chance = random.Random(number)
    attempt = 0
    run = victim(f"once-{number}-{attempt}")
    while not run.kill_after(chance.uniform(0.3, 1.0) * seconds):  # finished before: that was no kill
        attempt += 1
        run = victim(f"once-{number}-{attempt}")
    print(f"killed {run.state()}")
    run.finish()
    run.check()
    assert run.digest() == wanted
