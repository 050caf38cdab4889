"""What the campaigns share: a long form, a record of its figures, and children that start at once.

``DRAGOMAN_FAULTS=long`` (``make faults``) runs every campaign at full length and writes its figures to
``tests/faults/results.json``. Without it, each campaign runs a few cases.
"""

from __future__ import annotations

import json
import mmap
import os
import platform
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for hostile_requests: pytest's importlib mode adds no folder

LONG = os.environ.get("DRAGOMAN_FAULTS") == "long"
RESULTS = Path(__file__).parent / "results.json"


@pytest.fixture(scope="session")
def amount() -> Callable[[int, int], int]:
    """``amount(short, long)`` is how many cases to run."""
    return lambda short, full: full if LONG else short


@pytest.fixture(scope="session")
def record() -> Callable[[str, dict[str, Any]], None]:
    """``record(name, figures)`` keeps the figures of a campaign, in the long form only."""

    def write(name: str, figures: dict[str, Any]) -> None:
        print(f"\n{name}: {json.dumps(figures)}")
        if not LONG:
            return
        import torch

        import dragoman

        every = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
        every["command"] = "make faults"
        every["machine"] = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"
        every["versions"] = {
            "dragoman": dragoman.__version__, "torch": torch.__version__, "python": platform.python_version(),
        }  # fmt: skip
        every[name] = {"date": datetime.now(UTC).date().isoformat(), **figures}
        RESULTS.write_text(json.dumps(every, indent=2, sort_keys=True) + "\n", encoding="utf-8")

    return write


def resident_bytes() -> int:
    """Return the memory that this process has now. Tests before this one may have left it large."""
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0


@dataclass
class Child:
    """A process of its own that was forked from this one, which has torch and the package loaded."""

    number: int
    output: Path
    began: float = field(default_factory=time.monotonic)
    code: int | None = None  # negative: the signal that ended it
    seconds: float = 0.0
    memory: int = 0  # bytes at the most, beyond those that it had at first
    base: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, 8))  # shared: the bytes that it had at first

    def poll(self, wait: bool = False) -> bool:
        """Return whether it has ended."""
        if self.code is None:
            number, status, usage = os.wait4(self.number, 0 if wait else os.WNOHANG)
            if number:
                self.code = os.waitstatus_to_exitcode(status)
                self.seconds = time.monotonic() - self.began
                self.memory = usage.ru_maxrss * 1024 - int.from_bytes(self.base[:], "little")
        return self.code is not None

    def finish(self, timeout: float) -> Child:
        """Wait for its end; after ``timeout`` seconds it is killed."""
        while not self.poll():
            if time.monotonic() - self.began > timeout:
                self.kill()
                break
            time.sleep(0.002)
        return self

    def kill(self) -> None:
        if not self.poll():
            os.kill(self.number, signal.SIGKILL)
            self.poll(wait=True)

    @property
    def text(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")


@pytest.fixture(scope="session")
def start() -> Callable[..., Child]:
    """``start(output, *arguments)`` runs the command line in a forked child, with its output in a file."""
    import torch

    import dragoman.cli.main
    import dragoman.inference.load
    import dragoman.training.run

    torch.set_num_threads(1)

    def run(output: Path, *arguments: object, stdin: Path | None = None, memory: int | None = None) -> Child:
        sys.stdout.flush()
        sys.stderr.flush()
        child = Child(0, output)
        child.number = os.fork()
        if child.number:
            return child
        # not those of this process: a fork has the pages of mapped files only once it reads them
        child.base[:] = resident_bytes().to_bytes(8, "little")
        code = 1
        try:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
            source = os.open(stdin or os.devnull, os.O_RDONLY)
            os.dup2(source, 0), os.dup2(descriptor, 1), os.dup2(descriptor, 2)
            sys.stdin, sys.stdout, sys.stderr = open(0, closefd=False), open(1, "w"), open(2, "w")  # noqa: SIM115
            if memory is not None:
                resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
            sys.argv = ["dragoman", *map(str, arguments)]
            try:
                dragoman.cli.main.main()
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
            sys.stdout.flush()
            sys.stderr.flush()
        except BaseException:
            import traceback

            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)

    return run
