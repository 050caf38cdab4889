"""One tiny real run for all tests of the whole, trained once a process, and how to start the command line."""

from __future__ import annotations

import io
import os
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

LETTERS = "abcdefgh"

# A model that trains in a second: one thread, so that two test processes do not slow each other down.
TINY: dict[str, Any] = {
    "source": {"embedding": 16},
    "encoder": {"width": 16},
    "decoder": {"width": 32, "embedding": 16, "dropout": 0.1},
    "training": {"threads": 1, "batch_tokens": 96, "max_updates": 60, "average": 2, "log_every": 10},
}


def make_pairs(rows: int, seed: int = 0, longest: int = 6) -> list[tuple[str, str]]:
    """Short strings of letters and their reversal; every source once."""
    chance = random.Random(seed)
    sources: dict[str, None] = {}
    while len(sources) < rows:
        sources["".join(chance.choices(LETTERS, k=chance.randint(2, longest)))] = None
    return [(source, source[::-1]) for source in sources]


def write_pairs(path: Path, pairs: Sequence[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return path


def flags(settings: dict[str, Any], above: str = "") -> list[str]:
    """A mapping as --set options."""
    found: list[str] = []
    for key, value in settings.items():
        path = f"{above}{key}"
        found += flags(value, f"{path}.") if isinstance(value, dict) else ["--set", f"{path}={value}"]
    return found


@dataclass(frozen=True)
class TinyRun:
    folder: Path
    pairs: Path  # the file that it was trained on
    settings: dict[str, Any]


class RunsCommand(Protocol):
    def __call__(
        self, *arguments: object, stdin: bytes = b"", cwd: Path | None = None
    ) -> subprocess.CompletedProcess[bytes]: ...


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """200 pairs, a model of some thousand parameters. Tests read it and never write into it."""
    from dragoman.workflow import train

    place = tmp_path_factory.mktemp("tiny")
    pairs = write_pairs(place / "pairs.tsv", make_pairs(200))
    train(pairs, out=place / "run", settings=TINY)
    return TinyRun(place / "run", pairs, TINY)


@pytest.fixture(scope="session")
def tiny_settings() -> dict[str, Any]:
    return TINY


@pytest.fixture(scope="session")
def as_flags() -> Callable[[dict[str, Any]], list[str]]:
    return flags


@pytest.fixture(scope="session")
def pairs_file() -> Callable[..., Path]:
    """``pairs_file(path, rows, seed)`` writes a file of made-up pairs."""

    def write(path: Path, rows: int = 60, seed: int = 0, longest: int = 6) -> Path:
        return write_pairs(path, make_pairs(rows, seed, longest))

    return write


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """For processes of our own: this source tree, one thread, and a person's terminal settings out of the way."""
    source = str(Path(__file__).parent.parent / "src")
    return {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "PYTHONUTF8": "1"}


@pytest.fixture(scope="session")
def command(environment: dict[str, str]) -> RunsCommand:
    """The command line in a process of its own: exit code, bytes of both streams."""

    def run(*arguments: object, stdin: bytes = b"", cwd: Path | None = None) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "dragoman.cli", *map(str, arguments)],
            input=stdin,
            cwd=cwd,
            env=environment,
            capture_output=True,
            timeout=120,
            check=False,
        )

    return run


@dataclass(frozen=True)
class Answer:
    """What a call of the command line gave."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        """Output lines, which end at \\n only."""
        text = self.out.decode("utf-8")
        assert text == "" or text.endswith("\n")
        return text.split("\n")[:-1]


class CallsMain(Protocol):
    def __call__(self, *arguments: object, stdin: bytes = b"") -> Answer: ...


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> CallsMain:
    """The command line's ``main`` in this process, which spares importing torch anew."""
    from dragoman.cli import main

    def run(*arguments: object, stdin: bytes = b"") -> Answer:
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["dragoman", *map(str, arguments)])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            patch.setenv("NO_COLOR", "1")
            with pytest.raises(SystemExit) as left:
                main()
        out.flush()
        err.flush()
        code = left.value.code
        assert code is None or isinstance(code, int)
        return Answer(code or 0, out.buffer.getvalue(), err.buffer.getvalue().decode())

    return run
