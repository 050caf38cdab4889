"""The rows of a run's own data, read again from the files it was trained on, if these are still there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dragoman.data.examples import Example
from dragoman.data.reading import read
from dragoman.errors import UserError
from dragoman.parts import kind_of
from dragoman.sides import Data, read_data
from dragoman.studio.history import data_files, missing_files
from dragoman.system import System


def read_file(system: System, files: Sequence[str]) -> list[Example]:
    """As the run's training file was read."""
    for path in files:
        if not Path(path).exists():
            raise UserError(f"{path}: no such file; give a file like those that the run was trained on")
    return list(read(list(files), system.recipe.reading, _kinds(system)).examples)


def own_rows(system: System, folder: Path) -> Data:
    """The run's train, dev and test rows: what was held out is found again, since it is chosen by the source itself."""
    files = data_files(folder)
    train = files.get("train")
    gone = missing_files(folder)
    if not train or gone:  # without its dev or test file, rows that were trained on would be held out in their place
        told = f" ({', '.join(gone[:3])})" if gone else ""
        raise UserError(
            f"{folder}: files of its data are not there any more, or not from this folder{told}; give a file"
        )
    return read_data(train, files.get("dev"), files.get("test"), system.recipe.reading, _kinds(system))


def measured_rows(system: System, folder: Path) -> tuple[list[Example], str]:
    """And what to call them."""
    data = own_rows(system, folder)
    side = "test" if data.test else "dev"
    return list(data.test or data.dev), side


def _kinds(system: System) -> dict[str, str]:
    return {name: kind_of(one.modality) for name, one in system.recipe.sources.items()}
