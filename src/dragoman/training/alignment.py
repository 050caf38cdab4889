"""At the end of training: which attention map the alignments of the run are read from."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dragoman.data.examples import Example
from dragoman.errors import UserError
from dragoman.evaluation.alignment.choose import choose_alignment
from dragoman.inference.system import System
from dragoman.runs.alignment import AlignmentChoice, delete_alignment
from dragoman.runs.folder import recorded_run_name


def write_alignment(system: System, folder: Path, train: Sequence[Example], dev: Sequence[Example]) -> None:
    """Write alignment.json beside the final weights, if there is something to choose.

    Without the file, alignments are read from the mean of all maps.
    """
    run = recorded_run_name(folder) or ""
    with suppress(UserError):  # a damaged one is written again
        if AlignmentChoice.read(folder, run) is not None:
            return  # training was at its end already
    delete_alignment(folder)
    with suppress(UserError):  # the run itself is saved, and alignments work without the file
        choice = choose_alignment(system, train, dev)
        if choice is not None:
            choice.write(folder, run)
