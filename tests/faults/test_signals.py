"""SIGTERM and Ctrl-C at random moments of training: all is saved, and the same command goes on from there.

The long form uses a model of some size, with updates and validations that take a while, and records
how long it takes until the process has ended.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dragoman.config import merge
from dragoman.training.checkpoints.checkpoint import read_progress

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

ENDLESS = {"max_updates": 10**6, "max_epochs": 10**6, "patience": 10**6, "log_every": 1, "validate_every": 8}
SIDE = {"kind": "transformer", "width": 256, "layers": 3, "heads": 4, "feed_forward": 1024}
MIDDLE = {"source": {"embedding": 256}, "encoder": SIDE, "decoder": SIDE, "training": {"batch_tokens": 2048}}


def test_a_signal_saves_and_the_same_command_goes_on(
    tmp_path: Path, start: Callable[..., Any], pairs_file: Callable[..., Path], tiny_settings: dict[str, Any],
    as_flags: Callable[[dict[str, Any]], list[str]], amount: Callable[[int, int], int],
    record: Callable[[str, dict[str, Any]], None],
) -> None:  # fmt: skip
    is_long = bool(amount(0, 1))
    pairs = pairs_file(tmp_path / "pairs.tsv", amount(60, 4000), longest=amount(6, 60))
    flags = as_flags(merge(MIDDLE if is_long else tiny_settings, {"training": ENDLESS}))
    folder, chance, last, seconds = tmp_path / "run", random.Random(1), 0, []

    def events() -> list[dict[str, Any]]:
        """What metrics.jsonl says; its last line may be half written."""
        path = folder / "metrics.jsonl"
        lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
        return [json.loads(line) for line in lines]

    for number in range(amount(2, 20)):
        child = start(tmp_path / "output", "train", pairs, "--out", folder, "--quiet", *flags)
        while not any(event["event"] == "stepped" and event["update"] > last for event in events()):
            assert not child.poll(), child.text
            time.sleep(0.01)
        time.sleep(chance.uniform(0, amount(0, 1) * 5 + 0.1))
        asked = time.monotonic()
        os.kill(child.number, signal.SIGINT if number % 2 else signal.SIGTERM)
        assert child.finish(300).code == 130, child.text
        seconds.append(time.monotonic() - asked)
        stopped = events()[-1]
        assert stopped["event"] == "stopped" and stopped["reason"] == "interrupted"
        last = stopped["update"]
        assert read_progress(folder / "checkpoint.safetensors").update == last
        updates = [event["update"] for event in events() if event["event"] == "stepped"]
        assert updates == list(range(1, last + 1))  # each once: the next start has gone on where the last one stopped
    ordered = sorted(seconds)
    figures = {"median (s)": round(ordered[len(ordered) // 2], 2), "longest (s)": round(ordered[-1], 2)}
    record("signals", {"cases": len(seconds), **figures})
