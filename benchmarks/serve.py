"""Measure ``dragoman serve``: many clients, SIGTERM under load, memory, and throughput beside offline decoding.

    python benchmarks/serve.py                    # trains a run that copies its input, then everything: 10 minutes
    python benchmarks/serve.py --run RUN          # with such a run that there is already
    python benchmarks/serve.py --only load drain  # some of: load, drain, throughput, latency
    python benchmarks/serve.py --quick            # a few seconds each; nothing is written

All traffic stays on 127.0.0.1. What the clients expect is what the same run answers offline, so that an answer that
reaches the wrong client is noticed: every client has inputs of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

from serving.asking import Tally, ask_in_turn, ask_once
from serving.process import Server, memory_of, private_memory_of, start_server
from training.machine import processor, versions

RESULTS = Path(__file__).parent / "results" / "serving.json"
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
LONGEST = 24  # letters of an input
WORKERS = 2
PACKAGES = ["dragoman", "torch", "fastapi", "uvicorn"]
ROWS, UPDATES = 20_000, 900


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, help="folder of a run (default: one is trained)")
    parser.add_argument("--only", nargs="+", choices=list(CAMPAIGNS), default=list(CAMPAIGNS))
    parser.add_argument("--clients", type=int, default=200, help="that ask at the same time in `load`")
    parser.add_argument("--seconds", type=float, default=60.0, help="of `load`")
    parser.add_argument("--rounds", type=int, default=5, help="of `throughput`")
    parser.add_argument(
        "--inputs", type=Path, help="text file for `throughput` and `latency`, with an input on each line"
    )
    parser.add_argument("--sentences", type=int, default=1000, help="of a round of `throughput`")
    parser.add_argument("--quick", action="store_true", help="a few seconds each; nothing is written")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.rounds, options.sentences = 4.0, 1, 200
    with tempfile.TemporaryDirectory() as work:
        run = options.run or train_copy(Path(work))
        found = {name: CAMPAIGNS[name](run, options) for name in options.only}
    for name, figures in found.items():
        print(f"{name}: {json.dumps(figures, indent=2)}")
    if not options.quick:
        given = [f" --{name} {name.upper()}" for name in ("run", "inputs") if getattr(options, name) is not None]
        write_results(found, "".join(given))


def write_results(found: dict[str, Any], given: str) -> None:
    every = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    about = {"date": date.today().isoformat(), "processor": processor(), "versions": versions(sys.executable, PACKAGES)}
    every |= {name: {"command": f"python benchmarks/serve.py --only {name}{given}", **about, **figures}
              for name, figures in found.items()}  # fmt: skip
    RESULTS.write_text(json.dumps(every, indent=2) + "\n", encoding="utf-8")


def train_copy(folder: Path) -> Path:
    """Train a run that copies its input, so that each answer shows whose it is. Its size is what ``auto`` chooses."""
    import dragoman

    table = folder / "copy.tsv"
    lines = [f"{text}\t{text}\n" for text in make_texts(ROWS, LONGEST, seed=1)]
    table.write_text("".join(lines), encoding="utf-8")
    dragoman.train(table, out=folder / "copy", settings={"training": {"max_updates": UPDATES}})
    return folder / "copy"


def make_texts(count: int, longest: int, seed: int) -> list[str]:
    """Return different strings of letters."""
    generator = random.Random(seed)
    texts: dict[str, None] = {}
    while len(texts) < count:
        texts["".join(generator.choices(LETTERS, k=generator.randint(max(1, longest * 2 // 5), longest)))] = None
    return list(texts)


def expect(run: Path, texts: list[str], **options: Any) -> dict[str, str]:
    """Return what the run answers offline, and make sure that answers differ enough to tell clients apart."""
    import dragoman

    answers = [each.text for each in dragoman.load(run).predict(texts, attention=False, trace=False, **options)]
    assert len(set(answers)) > 0.9 * len(texts), "the answers of this run are too much alike"
    return dict(zip(texts, answers, strict=True))


# ---- the campaigns


def measure_load(run: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Let many clients ask for a while, and another one look whether the server lives."""
    texts = make_texts(40 * options.clients, LONGEST, seed=2)
    expected = expect(run, texts)
    with start_server(run, "--workers", str(WORKERS)) as server:
        tally = Tally()
        with probing(server.port, options.seconds) as health:
            memory = asyncio.run(ask_for(server, texts, expected, tally, options.clients, options.seconds))
        private = private_memory_of(server)
    assert not tally.wrong and not tally.lost, (tally.wrong[:5], tally.lost[:5])
    assert set(tally.statuses) <= {"200", "429", "503"}, tally.statuses
    return {
        "clients": options.clients,
        "seconds": options.seconds,
        "statuses": tally.statuses,
        "answers for another client": len(tally.wrong),
        "requests without an answer": len(tally.lost),
        "requests per second": round(len(tally.seconds) / options.seconds),
        "seconds of an answer": percentiles(tally.seconds),
        "seconds of /healthz": percentiles(health),
        "memory (MB, proportional share of all processes)": memory,
        "private memory of each process (MB)": private,
        "memory growth (%)": round(100 * (memory["at the end"] / memory["after a sixth"] - 1), 1),
    }


async def ask_for(
    server: Server, texts: list[str], expected: dict[str, str], tally: Tally, clients: int, seconds: float
) -> dict[str, float]:
    """Let clients ask for some seconds; return the memory of the server meanwhile."""
    until = time.monotonic() + seconds
    memory = {"before": memory_of(server)}

    async def watch() -> None:
        await asyncio.sleep(seconds / 6)
        memory["after a sixth"] = memory_of(server)
        await asyncio.sleep(seconds * 0.8)
        memory["at the end"] = memory_of(server)

    asked = [
        ask_in_turn(server.port, texts[number::clients], expected, tally, lambda: time.monotonic() > until, {})
        for number in range(clients)
    ]
    await asyncio.gather(watch(), *asked)
    return memory


@contextmanager
def probing(port: int, seconds: float) -> Iterator[list[float]]:
    """Ask /healthz from a process of its own, whose times the many clients of this one do not lengthen."""
    taken: list[float] = []
    command = [sys.executable, "-m", "serving.probe", str(port), str(seconds)]
    probe = subprocess.Popen(command, cwd=Path(__file__).parent, stdout=subprocess.PIPE, text=True)
    try:
        yield taken
    finally:
        output, _ = probe.communicate(timeout=seconds + 60)
        taken += json.loads(output)


def measure_drain(run: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Send SIGTERM while many clients ask."""
    texts = make_texts(20 * options.clients, LONGEST, seed=3)
    expected = expect(run, texts)
    tally, times = Tally(), {}

    async def stop_under_load(server: Server) -> None:
        clients = asyncio.gather(*(
            ask_in_turn(server.port, texts[number :: options.clients], expected, tally, lambda: False, {},
                        until_stopped=True)
            for number in range(options.clients)
        ))  # fmt: skip
        await asyncio.sleep(2.0)
        server.process.terminate()
        began = time.monotonic()
        while (await ask_once(server.port, "GET", "/readyz"))[0] == 200:
            await asyncio.sleep(0.01)
        times["not ready after (s)"] = round(time.monotonic() - began, 3)
        await clients
        times["clients done after (s)"] = round(time.monotonic() - began, 3)
        while server.process.poll() is None and time.monotonic() - began < 60:
            await asyncio.sleep(0.01)
        times["ended after (s)"] = round(time.monotonic() - began, 3)

    with start_server(run, "--workers", str(WORKERS)) as server:
        asyncio.run(stop_under_load(server))
        code = server.process.returncode
    assert not tally.wrong and not tally.lost, (tally.wrong[:5], tally.lost[:5])
    return {
        "clients": options.clients,
        "statuses": tally.statuses,
        "accepted requests without an answer": len(tally.lost),
        **times,
        "exit code": code,
    }


def measure_throughput(run: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Compare 16 clients that send single sentences with offline decoding, in turns."""
    import dragoman

    texts = make_texts(options.sentences, LONGEST, seed=4)
    if options.inputs is not None:
        lines = options.inputs.read_text(encoding="utf-8").splitlines()
        texts = list(dict.fromkeys(line for line in lines if line.strip()))[: options.sentences]
    beam, clients = 5, 16
    system = dragoman.load(run)
    expected = dict(zip(texts, [each.text for each in system.predict(texts, beam=beam)], strict=True))
    rounds: dict[str, list[float]] = {"offline": [], "server": []}
    with start_server(run, "--workers", str(WORKERS)) as server:
        for number in range(options.rounds + 1):
            began = time.monotonic()
            for _ in system.stream(texts, beam=beam, workers=WORKERS, attention=False, trace=False):
                pass
            offline = len(texts) / (time.monotonic() - began)
            tally = Tally()
            began = time.monotonic()
            asyncio.run(ask_once_each(server.port, texts, expected, tally, clients, {"beam": beam}))
            served = len(texts) / (time.monotonic() - began)
            assert not tally.wrong and not tally.lost and tally.statuses == {"200": len(texts)}, tally
            if number:  # the first round warms both up
                rounds["offline"].append(round(offline, 1))
                rounds["server"].append(round(served, 1))
    medians = {name: statistics.median(numbers) for name, numbers in rounds.items()}
    return {
        "clients": clients,
        "beam": beam,
        "sentences": len(texts),
        "preset": system.recipe.preset,
        "parameters": system.outline.parameters,
        "engine": system.engine.name,
        "sentences per second": medians,
        "share of offline (%)": round(100 * medians["server"] / medians["offline"], 1),
        "rounds": rounds,
    }


def measure_latency(run: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Let clients with short inputs ask while others ask for long ones, of one worker and of two."""
    import dragoman

    texts = make_texts(options.sentences, LONGEST, seed=5)
    if options.inputs is not None:
        texts = [line for line in options.inputs.read_text(encoding="utf-8").splitlines() if line.strip()]
    texts = sorted(dict.fromkeys(texts), key=len)
    quarter = len(texts) // 4
    short, middle = texts[:quarter], texts[quarter : 3 * quarter]
    long = [" ".join(middle[place : place + 4]) for place in range(0, len(middle) - 4, 4)]
    beam, each = 5, 4
    found: dict[str, Any] = {"clients with short inputs": each, "clients with long inputs": each, "beam": beam}
    system = dragoman.load(run)
    expected = dict(zip([*short, *long], [one.text for one in system.predict([*short, *long], beam=beam)], strict=True))
    for workers in (1, 2):
        with start_server(run, "--workers", str(workers)) as server:
            for is_warm in (False, True):
                tallies = Tally(), Tally()
                asyncio.run(ask_both(server, (short, long), expected, tallies, each, 10.0 if is_warm else 2.0, beam))
        assert not any(tally.wrong or tally.lost for tally in tallies), tallies
        found[f"{workers} workers"] = {
            f"seconds of {name} inputs": percentiles(tally.seconds)
            for name, tally in zip(("short", "long"), tallies, strict=True)
        }
    return found


async def ask_both(
    server: Server, texts: tuple[list[str], list[str]], expected: dict[str, str], tallies: tuple[Tally, Tally],
    clients: int, seconds: float, beam: int,
) -> None:  # fmt: skip
    until, options = time.monotonic() + seconds, {"beam": beam}
    await asyncio.gather(*(
        ask_in_turn(server.port, own[number::clients], expected, tally, lambda: time.monotonic() > until, options)
        for own, tally in zip(texts, tallies, strict=True) for number in range(clients)
    ))  # fmt: skip


async def ask_once_each(
    port: int, texts: list[str], expected: dict[str, str], tally: Tally, clients: int, options: dict[str, Any]
) -> None:
    await asyncio.gather(*(
        ask_in_turn(port, texts[number::clients], expected, tally, lambda: False, options, once=True)
        for number in range(clients)
    ))  # fmt: skip


def percentiles(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    return {
        f"p{share}": round(ordered[max(0, math.ceil(share / 100 * len(ordered)) - 1)], 4) for share in (50, 90, 99, 100)
    }


CAMPAIGNS = {
    "load": measure_load,
    "drain": measure_drain,
    "throughput": measure_throughput,
    "latency": measure_latency,
}

if __name__ == "__main__":
    main()
