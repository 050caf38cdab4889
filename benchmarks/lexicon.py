"""Measure a lexicon of a million entries: loading, memory, and decoding beside free decoding.

    python benchmarks/lexicon.py RUN FILE            # five rounds, about two minutes
    python benchmarks/lexicon.py RUN FILE --quick    # one round with a small lexicon; nothing is written

RUN is the folder of a trained run that reads one text, FILE a table like the one it was trained on. The lexicon has the
targets of the table and random texts made from pairs of neighbouring tokens in them, as long as they are, so that its
tree branches as that of real words does. Free and constrained decoding take turns, with one
thread, beam 5, in batches of 64.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch
from training.machine import processor, versions

import dragoman
from dragoman.data.vocabulary import EOS

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a trained run")
    parser.add_argument("file", type=Path, help="table of sources and targets")
    parser.add_argument("--entries", type=int, default=1_000_000)
    parser.add_argument("--inputs", type=int, default=448)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--engine", default="torch")
    parser.add_argument("--quick", action="store_true", help="one round with a small lexicon; nothing is written")
    options = parser.parse_args()
    if options.quick:
        options.entries, options.inputs, options.rounds = 10_000, 64, 1
    torch.set_num_threads(1)
    system = dragoman.load(options.run, engine=options.engine)
    rows = [line.split("\t") for line in options.file.read_text(encoding="utf-8").splitlines()]
    sources, targets = [row[0] for row in rows][: options.inputs], [row[1] for row in rows]
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "words.txt"
        path.write_text("\n".join(make_entries(system, targets, options.entries)) + "\n", encoding="utf-8")
        result = measure(system, sources, path, options.rounds)
    result |= {"inputs": len(sources), "entries": options.entries, "tokenizer": system.target.kind}
    result |= {"vocabulary": system.target.size, "engine": options.engine, "beam": 5, "batch": 64, "threads": 1}
    result |= {"command": f"python benchmarks/lexicon.py RUN {options.file.name}", "date": date.today().isoformat()}
    result |= {
        "versions": versions(sys.executable, ["dragoman", "torch", "numpy"]),
        "processor": processor(),
        "cores": os.cpu_count(),
    }
    print(json.dumps(result, indent=2))
    if not options.quick:
        (RESULTS / f"lexicon-{system.target.kind}.json").write_text(json.dumps(result, indent=2) + "\n", "utf-8")


def make_entries(system: Any, targets: Sequence[str], count: int) -> list[str]:
    """Return the targets, and random texts from the pairs of neighbouring tokens in them."""
    after: dict[int, list[int]] = defaultdict(list)
    for target in targets:
        tokens = [EOS, *system.target.encode(target), EOS]
        for first, second in itertools.pairwise(tokens):
            after[first].append(second)
    lengths = [len(system.target.encode(target)) for target in targets]
    draw = random.Random(1)
    entries = dict.fromkeys(targets)
    while len(entries) < count:
        tokens, longest = [draw.choice(after[EOS])], draw.choice(lengths)
        while tokens[-1] != EOS and len(tokens) <= longest:
            tokens.append(draw.choice(after[tokens[-1]]))
        if tokens[-1] == EOS and len(tokens) > 1:
            entries[system.target.decode(tokens)] = None
    return list(entries)


def measure(system: Any, sources: Sequence[str], lexicon: Path, rounds: int) -> dict[str, Any]:
    """Return the figures of one lexicon."""
    free = system.session(beam=5)
    decode(free, sources[:64])
    before = resident("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    began = time.perf_counter()
    constrained = system.session(beam=5, lexicon=lexicon)
    load = time.perf_counter() - began
    decode(constrained, sources)
    peak, after = resident("VmHWM") - before, resident("VmRSS") - before
    times: dict[str, list[float]] = {"free": [], "constrained": []}
    for number in range(rounds):
        turns = [("free", free), ("constrained", constrained)]
        for name, session in turns if number % 2 else reversed(turns):
            times[name].append(clock(session, sources))
    ratios = [own / other for own, other in zip(times["constrained"], times["free"], strict=True)]
    return {
        "load_seconds": round(load, 2),
        "memory_peak_mb": round(peak / 1e6),
        "memory_after_mb": round(after / 1e6),
        "free_seconds": round(statistics.median(times["free"]), 3),
        "constrained_seconds": round(statistics.median(times["constrained"]), 3),
        "slower": round(statistics.median(ratios), 3),
        "slower_range": [round(min(ratios), 3), round(max(ratios), 3)],
        "nodes": len(constrained.constraints.lexicon.trie),
    }


def decode(session: Any, sources: Sequence[str]) -> None:
    answers = session.predict(sources, attention=False, trace=False, probabilities=False)
    assert all(answer.error is None for answer in answers)


def clock(session: Any, sources: Sequence[str]) -> float:
    """Return the processor seconds of decoding."""
    began = time.process_time()
    decode(session, sources)
    return time.process_time() - began


def resident(field: str) -> int:
    """Return a field of the memory of this process, in bytes."""
    lines = Path(f"/proc/{os.getpid()}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


if __name__ == "__main__":
    main()
