"""Run a contender in a process of its own, read the rates it prints, and stop it after the time of a round."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path

from .job import REPORT_EVERY, Contender, Job
from .machine import QUIET, Watch

WARM_UPDATES, WARM_SECONDS = 6, 2.0
PATIENCE = 240.0  # seconds for starting and warming up
HERE = Path(__file__).parents[1]


class Failed(Exception):
    """A contender ended before it was measured; the message is its last lines."""


@dataclass(frozen=True)
class Measure:
    """One round of one contender."""

    tokens_per_second: float
    seconds: float
    updates: int
    own_cpus: float | None
    other_cpus: float | None

    @property
    def noisy(self) -> bool:
        return self.other_cpus is None or self.other_cpus > QUIET


def environment(job: Job, peer: bool) -> dict[str, str]:
    """Return the user's environment with the number of threads set and without settings of an allocator."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "DRAGOMAN_"))}
    paths = [os.path.abspath(path) for path in inherited.pop("PYTHONPATH", "").split(os.pathsep) if path]
    if paths and not peer:
        inherited["PYTHONPATH"] = os.pathsep.join(paths)
    threads = str(job.threads)
    return inherited | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads, "PYTHONUNBUFFERED": "1"}


def measure(contender: Contender, job: Job, seconds: float) -> Measure:
    """Start the contender, measure it for so many seconds after its warm-up, and stop it."""
    with tempfile.TemporaryDirectory(dir=job.work) as work:
        job = replace(job, work=work)
        process = subprocess.Popen(
            contender.command(job),
            cwd=work if contender.is_peer else HERE,
            env=environment(job, contender.is_peer),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        alarm = threading.Timer(PATIENCE + 4 * seconds, _stop, [process])
        alarm.start()
        try:
            return _read_rates(contender, process, seconds)
        finally:
            alarm.cancel()
            _stop(process)
            process.wait()


def _read_rates(contender: Contender, process: subprocess.Popen[str], seconds: float) -> Measure:
    """Average the reported rates, each weighted by the time since the report before: tokens over time."""
    assert process.stdout is not None
    last_lines: deque[str] = deque(maxlen=6)
    reports, tokens, first, begin, previous = 0, 0.0, 0.0, 0, 0.0
    watch: Watch | None = None
    for line in process.stdout:
        rate = contender.read(line)
        now = time.perf_counter()
        if rate is None:
            last_lines.append(line.rstrip())
            continue
        reports += 1
        first = first or now
        if watch is not None:
            tokens += rate * (now - previous)
            elapsed = now - watch.began
            if elapsed >= seconds:
                return Measure(tokens / elapsed, elapsed, (reports - begin) * REPORT_EVERY, *watch.read())
        elif reports * REPORT_EVERY >= WARM_UPDATES and now - first >= WARM_SECONDS:
            watch, begin = Watch(process.pid), reports
            now = watch.began
        previous = now
    raise Failed("\n".join(last_lines) or "it printed nothing")


def _stop(process: subprocess.Popen[str]) -> None:
    """Kill the session that was started here, and nothing else."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
