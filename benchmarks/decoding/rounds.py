"""Keep a process for each contender, ask them in turns, and count what other programs used meanwhile."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from training.machine import QUIET, Watch, busy_seconds, session_seconds, wait_until_quiet

from .contenders import Contender

BEAMS = (1, 5)
BATCH = 64
WARM = 64  # inputs that are decoded before anything is measured


@dataclass(frozen=True)
class Figure:
    """One measure of one contender in one round."""

    value: float
    others: float | None  # processors that other programs used meanwhile; None: unknown

    @property
    def is_noisy(self) -> bool:
        return self.others is None or self.others > QUIET


@dataclass
class Worker:
    """A process that answers requests."""

    contender: Contender
    process: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
        environment |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        environment |= self.contender.environment
        self.process = subprocess.Popen(
            self.contender.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        self.read()

    def send(self, **request: Any) -> None:
        _pipe(self.process.stdin).write(json.dumps(request) + "\n")
        _pipe(self.process.stdin).flush()

    def read(self) -> dict[str, Any]:
        for line in _pipe(self.process.stdout):
            if line.startswith("{"):  # libraries may print lines of their own
                return dict(json.loads(line))
        sys.exit(f"{self.contender.name}: the worker ended without an answer: {' '.join(self.contender.command)}")

    def ask(self, **request: Any) -> dict[str, Any]:
        self.send(**request)
        return self.read()

    def close(self) -> None:
        _pipe(self.process.stdin).close()
        self.process.wait()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def measure_alone(worker: Worker, rows: int, single: int) -> dict[str, Figure]:
    """Return sentences per processor second in batches, and the median milliseconds of one sentence."""
    figures = {}
    for beam in BEAMS:
        watch = Watch(worker.process.pid)
        answer = worker.ask(rows=rows, beam=beam, batch=BATCH)
        figures[f"beam {beam}, batch {BATCH}"] = Figure(rows / answer["cpu"], watch.read()[1])
        watch = Watch(worker.process.pid)
        answer = worker.ask(rows=single, beam=beam, batch=1)
        figures[f"beam {beam}, batch 1"] = Figure(1000 * statistics.median(answer["each"]), watch.read()[1])
    return figures


def measure_pair(workers: Sequence[Worker], rows: int) -> dict[str, Figure]:
    """Return sentences per second of the clock, of two processes that share the sentences."""
    figures = {}
    for beam in BEAMS:
        busy, own = busy_seconds(), _seconds_of(workers)
        for index, worker in enumerate(workers):
            worker.send(rows=rows, beam=beam, batch=BATCH, first=index, step=len(workers))
        answers = [worker.read() for worker in workers]
        clock = max(answer["clock"] for answer in answers)
        after = busy_seconds()
        others = None
        if busy is not None and after is not None:
            others = round(max(0.0, after - busy - (_seconds_of(workers) - own)) / clock, 2)
        figures[f"beam {beam}, two processes"] = Figure(rows / clock, others)
    return figures


def _seconds_of(workers: Sequence[Worker]) -> float:
    return sum(session_seconds(worker.process.pid) for worker in workers)


def run_rounds(
    contenders: Sequence[Contender], rows: int, *, rounds: int, single: int, wait: float
) -> tuple[dict[str, dict[str, list[Figure]]], dict[str, dict[int, list[Any]]]]:
    """Measure all contenders in turns; return the figures by contender and measure, and the outputs by contender."""
    workers = {contender.name: [Worker(contender), Worker(contender)] for contender in contenders}
    outputs: dict[str, dict[int, list[Any]]] = {}
    figures: dict[str, dict[str, list[Figure]]] = {name: {} for name in workers}
    try:
        for name, pair in workers.items():
            for worker in pair:
                for beam in BEAMS:
                    worker.ask(rows=min(rows, WARM), beam=beam, batch=BATCH)
            outputs[name] = {
                beam: pair[0].ask(rows=rows, beam=beam, batch=BATCH, outputs=True)["outputs"] for beam in BEAMS
            }
        for number in range(rounds):
            for name, pair in workers.items():
                wait_until_quiet(wait)
                found = measure_alone(pair[0], rows, single) | measure_pair(pair, rows)
                for measure, figure in found.items():
                    figures[name].setdefault(measure, []).append(figure)
                parts = (f"{measure}: {each.value:.1f}{'*' * each.is_noisy}" for measure, each in found.items())
                print(f"round {number + 1}: {name}: {', '.join(parts)}", flush=True)
    finally:
        for pair in workers.values():
            for worker in pair:
                worker.close()
    return figures, outputs
