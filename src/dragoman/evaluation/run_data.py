"""The examples that a run was trained and tested on, read again from their files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from dragoman.data.examples import Example, identity
from dragoman.data.reading.table import IN_MEMORY
from dragoman.data.splits import Data, read_data
from dragoman.errors import UserError
from dragoman.evaluation.reading import read_examples, source_kinds
from dragoman.inference.system import System
from dragoman.runs.history import AUDIT, read_audit

OnRow: TypeAlias = Callable[[int], object]  # called with the number of rows read so far; it may end reading by raising


def read_files(system: System, files: Sequence[str], on_row: OnRow | None = None) -> list[Example]:
    """Read a file, or two parallel ones, as the run's training files were read."""
    for path in files:
        if not Path(path).exists():
            raise UserError(f"{path}: no such file; give a file like those that the run was trained on")
    return list(read_examples(system, files, on_row=on_row).examples)


def read_run_data(system: System, folder: Path, on_row: OnRow | None = None) -> Data:
    """Read the run's train, dev and test examples.

    Held-out examples are the same as in training, since they are chosen by the source itself. If a
    dev or test file is missing, nothing is read: examples that were trained on would be held out in
    its place.
    """
    if is_from_memory(folder):
        raise UserError(f"{folder}: this run was trained on a table in memory, of which no rows are kept; give a file")
    files = find_data_files(folder)
    train = files.get("train")
    missing = _missing_data_files(folder)
    if not train or missing:
        names = f" ({', '.join(missing[:3])})" if missing else ""
        raise UserError(
            f"{folder}: data files of this run no longer exist, or were named relative to another folder{names}; "
            "give a file"
        )
    held_out = files.get("dev"), files.get("test")
    kinds = source_kinds(system)
    return read_data(train, *held_out, system.recipe.reading, kinds, on_row=on_row)


def read_test_examples(system: System, folder: Path, on_row: OnRow | None = None) -> tuple[list[Example], str]:
    """Return the run's test examples and "test", or if it has none its dev examples and "dev"."""
    data = read_run_data(system, folder, on_row)
    return list(data.test or data.dev), "test" if data.test else "dev"


def read_dev_examples(system: System, folder: Path, count: int, on_row: OnRow | None = None) -> list[Example]:
    """Return up to ``count`` dev examples with different sources, in their order.

    A dev file is read by itself. Only rows that were held out of the training file need the whole of it.
    """
    dev = find_data_files(folder).get("dev")
    examples = read_files(system, dev, on_row) if dev else read_run_data(system, folder, on_row).dev
    different = {identity(example): example for example in reversed(examples)}
    return list(reversed(different.values()))[:count]


def find_data_files(folder: Path) -> dict[str, list[str]]:
    """Return absolute paths of the files of each part of the data whose files all exist."""
    return {
        part: [str(Path(path).resolve()) for path in paths]
        for part, paths in _named_files(folder).items()
        if all(map(_exists, paths))
    }


def is_from_memory(folder: Path) -> bool:
    """Tell whether a run was trained on a table in memory, so that there is no file of its rows."""
    if not (folder / AUDIT).exists():
        return False
    return any(audit.get("format") == IN_MEMORY for audit in read_audit(folder)["files"].values())


def _missing_data_files(folder: Path) -> list[str]:
    return [path for paths in _named_files(folder).values() for path in paths if not _exists(path)]


def _named_files(folder: Path) -> dict[str, list[str]]:
    """Return the paths in audit.json by part (train, dev, test), as they were given."""
    if not (folder / AUDIT).exists():
        return {}
    return {part: audit["files"] for part, audit in read_audit(folder)["files"].items()}


def _exists(path: str) -> bool:
    return path != "-" and Path(path).exists()  # "-" was standard input
