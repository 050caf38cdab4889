"""At the end of training: the file with which the native library answers in place of torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dragoman.data.examples import Example
from dragoman.errors import UserError
from dragoman.export.portable import write_portable
from dragoman.export.verbs import as_input
from dragoman.files import delete_files
from dragoman.inference.engine.choice import open_portable
from dragoman.inference.system import System
from dragoman.runs.weights import PORTABLE
from dragoman.runtime.library import why_unavailable

ROWS = 50  # of dev, on which the file is compared with the model


def write_native_model(system: System, folder: Path, dev: Sequence[Example]) -> str | None:
    """Write model.dragoman beside the final weights, if the native library is there.

    Return a sentence if the library cannot answer for this model; torch does then.
    """
    if not system.recipe.training.native or why_unavailable() is not None:
        delete_native_model(folder)
        return None
    try:
        open_portable(folder)
        return None  # training was at its end already
    except UserError:
        delete_native_model(folder)
    inputs = [as_input(example) for example in dev[:ROWS]]
    try:
        write_portable(replace(system, folder=folder), folder, inputs)
    except UserError as error:
        return f"{PORTABLE} was not written, so predictions use torch: {error}"
    return None


def delete_native_model(folder: Path) -> None:
    """Delete a file that does not belong to the weights beside it."""
    delete_files(folder, [PORTABLE])
