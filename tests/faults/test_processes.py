"""Workers of torchrun that die, and torchrun asked to stop: the same weights as of a run in one undisturbed process.

The normal suite kills a worker once. ``make faults`` kills ten times, the first process and the second at random,
at random moments of the training.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.training.checkpoints.checkpoint import read_progress
from dragoman.training.run import train

KILLS = 10 if os.environ.get("DRAGOMAN_FAULTS") == "long" else 1

# A checkpoint after each update, so that each life of the workers gets further.
TRAINING: dict[str, Any] = {
    "threads": 1, "shares": 2, "max_updates": 40 + 30 * KILLS, "validate_every": 20, "save_every": 0.001,
    "log_every": 5, "batch_tokens": 128, "average": 2, "patience": 1000, "max_epochs": 1000,
}  # fmt: skip

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds the workers in /proc")


def test_workers_that_are_killed_are_started_again(
    tmp_path: Path, pairs_file: Callable[..., Path], tiny_settings: dict[str, Any],
    as_flags: Callable[[dict[str, Any]], list[str]], environment: dict[str, str],
) -> None:  # fmt: skip
    pairs = pairs_file(tmp_path / "pairs.tsv", 120)
    settings = {**tiny_settings, "training": {**tiny_settings["training"], **TRAINING}}
    environment = {**environment, "GLOO_SOCKET_IFNAME": "lo"}

    def start(name: str, restarts: int) -> subprocess.Popen[bytes]:
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", f"--max-restarts={restarts}"]
        options = ["-m", "dragoman", "train", str(pairs), "--out", str(tmp_path / name), *as_flags(settings)]
        with open(tmp_path / f"{name}.log", "wb") as log:
            return subprocess.Popen([sys.executable, *torchrun, *options], env=environment, stdout=log, stderr=log)

    chance = random.Random(3)
    killed, stopped = tmp_path / "killed", tmp_path / "stopped"
    process = start("killed", KILLS + 2)
    try:
        for number in range(KILLS):
            wait_for_update(process, killed, updates(killed) + chance.randrange(2, 20))
            victim = workers(process.pid)[chance.randrange(2)]
            print(f"kill {number + 1}: after update {updates(killed)}")
            os.kill(victim, signal.SIGKILL)
        assert process.wait(timeout=300) == 0, (tmp_path / "killed.log").read_text(errors="replace")
    finally:
        process.kill()
    assert check_metrics(killed)

    process = start("stopped", 0)
    try:
        wait_for_update(process, stopped, 3)
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=100)
    finally:
        process.kill()
    assert 3 <= updates(stopped) < TRAINING["max_updates"]  # saved, and not finished
    assert json.loads((stopped / "metrics.jsonl").read_text().splitlines()[-1])["reason"] == "interrupted"
    train(pairs, out=stopped, settings=settings)  # goes on in one process
    train(pairs, out=tmp_path / "whole", settings=settings)
    assert digest(killed) == digest(stopped) == digest(tmp_path / "whole")


def digest(folder: Path) -> str:
    return hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()


def updates(folder: Path) -> int:
    """How far the last checkpoint is."""
    path = folder / "checkpoint.safetensors"
    return read_progress(path).update if path.exists() else 0


def wait_for_update(process: subprocess.Popen[bytes], folder: Path, update: int) -> None:
    while updates(folder) < update:
        assert process.poll() is None, "torchrun has ended"
        time.sleep(0.01)


def workers(parent: int) -> list[int]:
    """The processes that torchrun has started, by their rank. They may just be starting."""
    found: dict[str, int] = {}
    while len(found) < 2:
        time.sleep(0.01)
        found = dict(children(parent))
    return [found["0"], found["1"]]


def children(parent: int) -> Iterator[tuple[str, int]]:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:  # it has just ended
            continue
        rank = next((value[5:].decode() for value in variables if value.startswith(b"RANK=")), None)
        if int(after_name[1]) == parent and rank is not None:
            yield rank, int(entry.name)


def check_metrics(folder: Path) -> bool:
    """Every report once and in order, as if nothing had happened."""
    events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    reported = [event["update"] for event in events if event["event"] == "stepped"]
    return reported == list(range(5, TRAINING["max_updates"] + 1, 5)) and bool(events[-1]["finished"])
