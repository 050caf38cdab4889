"""Measure training in two processes against one thread and two threads of one process.

    python benchmarks/processes.py              # five rounds, about 10 minutes
    python benchmarks/processes.py --quick      # one short round, to see that it works

Each contender is `dragoman train` with the preset transformer-tiny on made-up sentences, in the same number of shares,
so all compute the same updates. The contenders take turns, and the median of the rounds counts. A figure is the real
target tokens per second that metrics.jsonl reports, without the first reports. Beside it stands how many processors
other programs used just before: on a busy machine the figures mean little.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from training.corpus import make_up
from training.machine import busy_seconds, processor

RESULT = Path(__file__).parent / "results" / "processes.json"
FIRST_REPORTS = 2  # they are left out
SHARES = 2


@dataclass(frozen=True)
class Contender:
    name: str
    processes: int
    threads: int

    def command(self, options: Sequence[str]) -> list[str]:
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={self.processes}"]
        train = ["-m", "dragoman", "train", *options, "--set", f"training.threads={self.threads}"]
        return [sys.executable, *(torchrun if self.processes > 1 else []), *train]


CONTENDERS = (
    Contender("one thread", 1, 1),
    Contender("two processes", 2, 1),
    Contender("two threads", 1, 2),
)


@dataclass(frozen=True)
class Figure:
    tokens_per_second: float
    others: float | None  # processors that other programs used, just before


def measure(contender: Contender, data: Path, folder: Path, updates: int) -> Figure:
    """Train for some updates and return the speed."""
    settings = {
        "training.shares": SHARES, "training.max_updates": updates, "training.validate_every": 10**6,
        "training.log_every": 5, "training.batch_tokens": 4096, "training.average": 1, "data.header": "no",
    }  # fmt: skip
    options = [str(data), "--preset", "transformer-tiny", "--out", str(folder), "--quiet"]
    options += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    environment = {**os.environ, "OMP_NUM_THREADS": str(contender.threads), "GLOO_SOCKET_IFNAME": "lo"}
    others = used_by_others()
    command = contender.command([*options, "--dev", str(data.with_name("dev.tsv"))])
    done = subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=False)
    if done.returncode:
        sys.exit(f"{contender.name}: training failed")
    events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    speeds = [event["tokens_per_second"] for event in events if event["event"] == "stepped"][FIRST_REPORTS:]
    return Figure(statistics.median(speeds), others)


def used_by_others(seconds: float = 2.0) -> float | None:
    """Return how many processors are in use while nothing is measured."""
    before = busy_seconds()
    time.sleep(seconds)
    after = busy_seconds()
    return None if before is None or after is None else round((after - before) / seconds, 2)


def write_pairs(folder: Path) -> Path:
    """Write made-up sentences as pairs, and a few of them as dev rows."""
    make_up(folder)
    sides = [(folder / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("source", "target")]
    lines = [f"{source}\t{target}\n" for source, target in zip(*sides, strict=True)]
    (folder / "pairs.tsv").write_text("".join(lines), encoding="utf-8")
    (folder / "dev.tsv").write_text("".join(lines[:20]), encoding="utf-8")
    return folder / "pairs.tsv"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=60)
    parser.add_argument("--quick", action="store_true", help="one short round; nothing is written")
    options = parser.parse_args()
    rounds, updates = (1, 20) if options.quick else (options.rounds, options.updates)
    figures: dict[str, list[Figure]] = {contender.name: [] for contender in CONTENDERS}
    with tempfile.TemporaryDirectory() as place:
        data = write_pairs(Path(place))
        for number in range(rounds):
            for contender in CONTENDERS:
                figure = measure(contender, data, Path(place) / f"{number}-{contender.name.replace(' ', '-')}", updates)
                figures[contender.name].append(figure)
                print(f"round {number + 1}: {contender.name}: {figure.tokens_per_second:,.0f} tokens/s, "
                      f"others use {figure.others} processors", flush=True)  # fmt: skip
    medians = {name: statistics.median(f.tokens_per_second for f in made) for name, made in figures.items()}
    base = figures["one thread"]
    ratios = {
        name: [round(f.tokens_per_second / b.tokens_per_second, 2) for f, b in zip(made, base, strict=True)]
        for name, made in figures.items()
    }
    for name, median in medians.items():
        print(
            f"{name}: {median:,.0f} tokens/s, {median / medians['one thread']:.2f} × one thread; rounds {ratios[name]}"
        )
    if not options.quick:
        rows = {
            name: {
                "tokens_per_second": [round(f.tokens_per_second) for f in made],
                "others": [f.others for f in made],
                "times_one_thread": ratios[name],
            }
            for name, made in figures.items()
        }
        result = {"processor": processor(), "cores": os.cpu_count(), "updates": updates, "contenders": rows}
        RESULT.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
