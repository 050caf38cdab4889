"""Describe the machine, and measure how much of it other processes used during a round.

Threads that wait for each other at barriers make a run on a busy machine several times slower, not a little slower, so
a figure is worth nothing unless the machine was quiet. Priorities are left alone: a contender with a higher priority
would starve the others, which would then seem quiet. Without /proc the load is unknown, and the results say so.
"""

from __future__ import annotations

import contextlib
import os
import platform
import subprocess
import time
from pathlib import Path

PROC = Path("/proc")
QUIET = 0.1  # processors that other processes may use


def busy_seconds() -> float | None:
    """Return the processor seconds used on the whole machine, including those a hypervisor gave to others."""
    with contextlib.suppress(OSError, ValueError):
        ticks = [int(field) for field in (PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]]
        return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")  # without idle and waiting for disks
    return None


def session_seconds(session: int) -> float:
    """Return the processor seconds used by the processes of one session."""
    ticks = 0
    for path in PROC.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session:
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


class Watch:
    """Count the processors used by a session and by all other processes since the watch was started."""

    def __init__(self, session: int) -> None:
        self.session = session
        self.began, self.busy, self.own = time.perf_counter(), busy_seconds(), session_seconds(session)

    def read(self) -> tuple[float | None, float | None]:
        """Return the processors used by the session and by others, or None where that is unknown."""
        busy, elapsed = busy_seconds(), time.perf_counter() - self.began
        if busy is None or self.busy is None:
            return None, None
        own = session_seconds(self.session) - self.own
        return round(own / elapsed, 2), round(max(0.0, busy - self.busy - own) / elapsed, 2)


def wait_until_quiet(patience: float, interval: float = 1.5) -> float:
    """Wait until other processes are nearly idle, at most ``patience`` seconds; return the seconds waited."""
    began = time.perf_counter()
    while True:
        before = busy_seconds()
        if before is None:
            return 0.0
        time.sleep(interval)
        used = ((busy_seconds() or before) - before) / interval
        waited = time.perf_counter() - began
        if used < QUIET or waited >= patience:
            return waited


def processor() -> str:
    """Return the name of the processor."""
    with contextlib.suppress(OSError):
        for line in (PROC / "cpuinfo").read_text().split("\n"):
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def versions(python: str, packages: list[str]) -> dict[str, str]:
    """Return the versions of packages that are installed for the interpreter ``python``."""
    ask = "import sys, importlib.metadata as m\nfor name in sys.argv[1:]: print(m.version(name))"
    answer = subprocess.run([python, "-c", ask, *packages], capture_output=True, text=True, check=False)
    lines = answer.stdout.split("\n")[: len(packages)]
    return {name: version or "unknown" for name, version in zip(packages, lines, strict=False)}
