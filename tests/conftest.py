"""Shared fixtures: a tiny run, trained once in each test process, the command line, and the data of the examples."""

from __future__ import annotations

import importlib.util
import io
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import pytest

from dragoman.process.cpu import MARK, bfloat16_works, cap_onednn

cap_onednn()  # before any test makes torch compute: some machines announce AMX and cannot run it

LETTERS = "abcdefgh"

# A model that trains in a second: one thread, so that two test processes do not slow each other down.
TINY: dict[str, Any] = {
    "source": {"embedding": 16},
    "encoder": {"width": 16},
    "decoder": {"width": 32, "embedding": 16, "dropout": 0.1},
    "training": {"threads": 1, "batch_tokens": 96, "max_updates": 60, "average": 2, "log_every": 10, "native": False},
}


def make_pairs(rows: int, seed: int = 0, longest: int = 6) -> list[tuple[str, str]]:
    """Return short strings of letters with their reversal; every source is there once."""
    generator = random.Random(seed)
    sources: dict[str, None] = {}
    while len(sources) < rows:
        sources["".join(generator.choices(LETTERS, k=generator.randint(2, longest)))] = None
    return [(source, source[::-1]) for source in sources]


def write_pairs(path: Path, pairs: Sequence[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), encoding="utf-8")
    return path


def flags(settings: dict[str, Any], above: str = "") -> list[str]:
    """Return nested settings as ``--set`` options."""
    options: list[str] = []
    for key, value in settings.items():
        path = f"{above}{key}"
        options += flags(value, f"{path}.") if isinstance(value, dict) else ["--set", f"{path}={value}"]
    return options


@dataclass(frozen=True)
class TinyRun:
    folder: Path
    pairs: Path  # the file that it was trained on
    settings: dict[str, Any]


class RunsCommand(Protocol):
    def __call__(
        self, *arguments: object, stdin: bytes = b"", cwd: Path | None = None, env: Mapping[str, str] = ...
    ) -> subprocess.CompletedProcess[bytes]: ...


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyRun]:
    """A model of a few thousand parameters, trained on 200 pairs. Tests read it and never write into it."""
    from dragoman.training.run import train

    folder = tmp_path_factory.mktemp("tiny")
    pairs = write_pairs(folder / "pairs.tsv", make_pairs(200))
    train(pairs, out=folder / "run", settings=TINY)
    files = sorted(folder.rglob("*"))
    yield TinyRun(folder / "run", pairs, TINY)
    assert sorted(folder.rglob("*")) == files, "a test wrote into the folder of tiny_run; let it use a copy"


@pytest.fixture(scope="session")
def label_run(tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """A classifier of two texts, trained on rows in memory. Its ``pairs`` are the same rows as a file."""
    from dragoman.training.run import train

    folder = tmp_path_factory.mktemp("labels")
    generator = random.Random(5)
    texts = list(dict.fromkeys("".join(generator.choices("ab", k=generator.randint(4, 9))) for _ in range(300)))
    rows = [(text, text[::-1], ("more b", "more a")[text.count("a") > text.count("b")]) for text in texts]
    names = ("left", "right", "label")
    settings = {**TINY, "data": {"source": ["left", "right"], "target": "label"}}
    train([dict(zip(names, row, strict=True)) for row in rows], out=folder / "labels", settings=settings)
    lines = ["\t".join(row) for row in (names, *rows)]
    (folder / "labels" / "rows.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return TinyRun(folder / "labels", folder / "labels" / "rows.tsv", TINY)


@pytest.fixture(scope="session")
def native_run(tiny_run: TinyRun, tmp_path_factory: pytest.TempPathFactory) -> TinyRun:
    """A copy of the tiny run with a file that the native library reads. Tests read it and never write into it."""
    from dragoman.export.portable import write_portable
    from dragoman.inference.system import System
    from dragoman.runtime.library import why_unavailable

    if (reason := why_unavailable()) is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("native") / "run"
    shutil.copytree(tiny_run.folder, folder)
    write_portable(System.load(folder, "cpu"), folder, ["abc", "hgfed", "ab", "cagebad"])
    return TinyRun(folder, tiny_run.pairs, tiny_run.settings)


@pytest.fixture(scope="session")
def tiny_settings() -> dict[str, Any]:
    return TINY


@pytest.fixture(scope="session")
def needs_bfloat16() -> None:
    """Skip where bfloat16 products crash."""
    if MARK in os.environ and not bfloat16_works(capped=True):
        pytest.skip("bfloat16 products crash on this CPU, with and without AMX")


@pytest.fixture(scope="session")
def as_flags() -> Callable[[dict[str, Any]], list[str]]:
    return flags


@pytest.fixture(scope="session")
def pairs_file() -> Callable[..., Path]:
    """``pairs_file(path, rows, seed)`` writes a file of generated pairs."""

    def write(path: Path, rows: int = 60, seed: int = 0, longest: int = 6) -> Path:
        return write_pairs(path, make_pairs(rows, seed, longest))

    return write


@dataclass(frozen=True)
class ExampleData:
    """The script of an example, as a module, and the data that it wrote."""

    script: ModuleType
    folder: Path


@pytest.fixture(scope="session")
def example_data(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], ExampleData]:
    """``example_data("dates")`` runs ``examples/dates/make.py`` once for each test process."""

    @cache
    def write(name: str) -> ExampleData:
        path = Path(__file__).parent.parent / "examples" / name / "make.py"
        spec = importlib.util.spec_from_file_location(f"make_{name}", path)
        assert spec is not None and spec.loader is not None
        script = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = script  # dataclasses look up the module of their class
        spec.loader.exec_module(script)
        folder = tmp_path_factory.mktemp(name)
        script.write(folder)
        return ExampleData(script, folder)

    return write


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """The environment of child processes: this source tree, one thread, no colours."""
    source = str(Path(__file__).parent.parent / "src")
    return {**os.environ, "PYTHONPATH": source, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "PYTHONUTF8": "1"}


@pytest.fixture(scope="session")
def command(environment: dict[str, str]) -> RunsCommand:
    """Run the command line in a process of its own."""

    def run(
        *arguments: object, stdin: bytes = b"", cwd: Path | None = None, env: Mapping[str, str] = environment
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "dragoman", *map(str, arguments)],
            input=stdin,
            cwd=cwd,
            env=env,
            capture_output=True,
            timeout=120,
            check=False,
        )

    return run


@dataclass(frozen=True)
class Answer:
    """The exit code and the output of a call of the command line."""

    code: int
    out: bytes
    err: str

    @property
    def lines(self) -> list[str]:
        """The output lines, which end at \\n only."""
        text = self.out.decode("utf-8")
        assert text == "" or text.endswith("\n")
        return text.split("\n")[:-1]


class CallsMain(Protocol):
    def __call__(self, *arguments: object, stdin: bytes = b"") -> Answer: ...


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch) -> CallsMain:
    """Call the command line's ``main`` in this process, which does not import torch again."""
    from dragoman.cli.main import main

    def run(*arguments: object, stdin: bytes = b"") -> Answer:
        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", ["dragoman", *map(str, arguments)])
            patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin), "utf-8"))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            patch.setenv("NO_COLOR", "1")
            with pytest.raises(SystemExit) as exited:
                main()
        out.flush()
        err.flush()
        code = exited.value.code
        assert code is None or isinstance(code, int)
        return Answer(code or 0, out.buffer.getvalue(), err.buffer.getvalue().decode())

    return run
