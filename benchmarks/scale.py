"""Measure check, train, resuming and predict on many made-up pairs: time, and the peak memory of each process.

``python benchmarks/scale.py --rows 10000000`` takes some minutes and about 5 GB of disk. The page
``benchmarks/results/scale.md`` has the latest results. Only Linux: memory is read from /proc.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

WORDS = 30_000
MODEL = {  # tiny: what is measured is the data
    "sources.source.encoder.width": 64, "sources.source.modality.embedding": 64, "decoder.width": 64,
    "sources.source.modality.tokenizer.kind": "subwords", "sources.source.modality.tokenizer.size": 4000,
    "target.tokenizer.kind": "subwords", "target.tokenizer.size": 4000, "training.validate_every": 1000,
    "training.log_every": 1, "search.beam": 1, "data.held_out_limit": 50,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
    """What one command took."""

    name: str
    seconds: float
    cpu: float  # seconds of all its processes
    main: float  # MB, the peak of the process itself
    others: float  # MB, the largest peak of the processes that it started
    first: float = 0.0  # seconds until the first update was reported, where that was asked for

    def row(self, rows: int) -> str:
        return (
            f"| {self.name} | {self.seconds:,.1f} s | {self.cpu:,.1f} s | {rows / self.seconds:,.0f} "
            f"| {self.main:,.0f} MB | {self.others:,.0f} MB |"
        )


def write_pairs(path: Path, rows: int) -> None:
    """Write made-up sentences of 3 to 11 words and a letter-by-letter translation of each."""
    generator = np.random.default_rng(0)
    consonants, vowels = "bcdfghjklmnprstvwz", "aeiou"
    words = [
        "".join(
            consonants[generator.integers(18)] + vowels[generator.integers(5)] for _ in range(generator.integers(2, 5))
        )
        for _ in range(WORDS)
    ]
    table = str.maketrans("aeioubcdfghjklmnprstvwz", "eioauzbcdfghjklmnprstvw")
    translations = [word.translate(table) for word in words]
    with open(path, "w", encoding="ascii") as file:
        for begin in range(0, rows, 100_000):
            sizes = generator.integers(3, 12, min(100_000, rows - begin))
            chosen = (WORDS * generator.random(sizes.sum()) ** 3).astype(int).tolist()
            at = 0
            for size in sizes.tolist():
                row = chosen[at : at + size]
                at += size
                file.write(" ".join([words[i] for i in row]) + "\t" + " ".join([translations[i] for i in row]) + "\n")


def measure(name: str, *arguments: object, output: Path | None = None, appended: Path | None = None) -> Measured:
    """Run ``dragoman`` and measure it. ``appended``: a file to whose first new line time is taken, too."""
    command = [sys.executable, "-m", "dragoman", *map(str, arguments)]
    length = appended.stat().st_size if appended else 0
    reached: list[float] = []
    peaks: dict[int, int] = {}
    before, began = os.times(), time.monotonic()
    with open(output or os.devnull, "wb") as stream:
        process = subprocess.Popen(command, stdout=stream)
        watcher = threading.Thread(target=_watch, args=(process, peaks))
        watcher.start()
        while appended and not reached and process.poll() is None:
            if appended.stat().st_size > length:
                reached.append(time.monotonic() - began)
            time.sleep(0.01)
        code = process.wait()
    watcher.join()
    after = os.times()
    if code:
        raise SystemExit(f"{' '.join(command)}: exit code {code}")
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    others = max((peak for pid, peak in peaks.items() if pid != process.pid), default=0)
    seconds = time.monotonic() - began
    first = reached[0] if reached else 0.0
    return Measured(name, seconds, cpu, peaks.get(process.pid, 0) / 1024, others / 1024, first)


def move_to_later_epoch(run: Path, seed: int = 0) -> None:
    """Pretend that a run was stopped at a random position of its fourth epoch."""
    from dragoman.files import read_tensor_header
    from dragoman.training.checkpoints.checkpoint import Checkpoint

    path = run / "checkpoint.safetensors"
    checkpoint = Checkpoint.read(path)
    checkpoint.progress.epoch = 3
    checkpoint.progress.position = random.Random(seed).randrange(checkpoint.progress.epoch_updates)
    checkpoint.write(path, read_tensor_header(path).metadata["run"])


def measure_loading(run: Path) -> float:
    """Return the seconds that a process needs to start, import torch and load the model of a run."""
    began = time.monotonic()
    code = f"import dragoman; dragoman.load({str(run)!r}, engine='torch').model; import dragoman.training.run"
    subprocess.run([sys.executable, "-c", code], check=True)
    return time.monotonic() - began


def _watch(process: subprocess.Popen[bytes], peaks: dict[int, int]) -> None:
    """Note the largest resident size of a process and its children until it ends."""
    while process.poll() is None:
        for entry in filter(str.isdigit, os.listdir("/proc")):
            try:
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
                if process.pid in (int(entry), parent):
                    status = Path(f"/proc/{entry}/status").read_text()
                    peaks[int(entry)] = int(status.split("VmHWM:")[1].split()[0])
            except (OSError, IndexError):
                continue  # it has ended
        time.sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--lines", type=int, default=1_000_000, help="lines to predict")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dragoman-scale-") as name:
        folder = Path(name)
        pairs, run = folder / "pairs.tsv", folder / "run"
        write_pairs(pairs, options.rows)
        print(f"{datetime.now(UTC):%d %B %Y}, Python {platform.python_version()}, {os.cpu_count()} cores, "
              f"{platform.machine()}; {options.rows:,} pairs, {pairs.stat().st_size / 1e6:,.0f} MB\n")  # fmt: skip
        print(
            "| command | time | CPU | rows a second | peak | peak of the other processes |\n|---|---|---|---|---|---|"
        )
        settings = [part for key, value in MODEL.items() for part in ("--set", f"{key}={value}")]
        train = ["train", pairs, "--out", run, *settings]
        print(measure("check", "check", pairs).row(options.rows), flush=True)
        print(measure("train, 1 update", *train, "--set", "training.max_updates=1").row(options.rows), flush=True)
        move_to_later_epoch(run)
        resumed = measure("resume in the fourth epoch, 1 update", *train, "--set", "training.max_updates=2",
                          appended=run / "metrics.jsonl")  # fmt: skip
        print(resumed.row(options.rows), flush=True)
        loading = measure_loading(run)
        print(f"\nresume: the first update is reported after {resumed.first:.1f} s; starting Python, importing torch "
              f"and loading the model take {loading:.1f} s\n", flush=True)  # fmt: skip
        sources = folder / "sources.txt"
        with open(pairs, encoding="ascii") as lines, open(sources, "w", encoding="ascii") as file:
            for _ in range(10_000):
                file.write(lines.readline().partition("\t")[0] + "\n")
        few = measure(
            "predict 10,000 lines", "predict", run, sources, "--max-length", 3, "--beam", 1, output=folder / "few.txt"
        )
        with open(pairs, encoding="ascii") as lines, open(sources, "a", encoding="ascii") as file:
            for _ in range(options.lines - 10_000):
                file.write(lines.readline().partition("\t")[0] + "\n")
        many = measure(f"predict {options.lines:,} lines", "predict", run, sources, "--max-length", 3, "--beam", 1,
                       output=folder / "many.txt")  # fmt: skip
        print(few.row(10_000), many.row(options.lines), sep="\n")


if __name__ == "__main__":
    main()
