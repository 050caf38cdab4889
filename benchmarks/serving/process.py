"""A server in a process of its own, and how much memory it takes."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from serving.asking import ask_once

PATIENCE = 60.0


@dataclass(frozen=True)
class Server:
    """A server that is ready."""

    process: subprocess.Popen[bytes]
    port: int


@contextmanager
def start_server(run: Path, *options: str) -> Iterator[Server]:
    """Start ``dragoman serve`` on a free port of 127.0.0.1, and wait until it is ready."""
    command = [sys.executable, "-m", "dragoman", "serve", str(run), "--port", "0", *options]
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, stderr=output)
        try:
            began = time.monotonic()
            while (found := re.search(r"127\.0\.0\.1:(\d+)", log.read_text(encoding="utf-8"))) is None:
                assert process.poll() is None and time.monotonic() - began < PATIENCE, log.read_text(encoding="utf-8")
                time.sleep(0.05)
            while not _is_ready(int(found[1])):
                assert time.monotonic() - began < PATIENCE
                time.sleep(0.05)
            yield Server(process, int(found[1]))
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE)
            finally:
                process.kill()


def _is_ready(port: int) -> bool:
    with suppress(OSError):
        return asyncio.run(ask_once(port, "GET", "/readyz"))[0] == 200
    return False


def memory_of(server: Server) -> float:
    """Return the megabytes that the processes of a server have together; what they share counts once."""
    return round(sum(_field(process, "Pss") for process in processes_of(server)) / 1000, 1)


def private_memory_of(server: Server) -> list[float]:
    """Return the megabytes that each process has for itself alone, the one that talks to clients first."""
    own = [_field(process, "Private_Dirty") + _field(process, "Private_Clean") for process in processes_of(server)]
    return [round(kilobytes / 1000, 1) for kilobytes in own]


def processes_of(server: Server) -> list[int]:
    """Return the ids of the server's process and of its workers."""
    own = server.process.pid
    children = Path(f"/proc/{own}/task").glob("*/children")
    return [own, *(int(child) for path in children for child in path.read_text().split())]


def _field(process: int, name: str) -> int:
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return 0
