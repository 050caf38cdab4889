"""``dragoman.export_run``: a run in, files that other programs run out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dragoman.data.examples import Example
from dragoman.data.splits import PathLike
from dragoman.errors import UserError
from dragoman.evaluation.reading import read_examples
from dragoman.evaluation.run_data import read_dev_examples
from dragoman.export.ctranslate2 import export_ctranslate2
from dragoman.export.node import export_node
from dragoman.export.onnx import export_onnx
from dragoman.export.page import export_page
from dragoman.export.parity import Parity
from dragoman.export.portable import export_portable
from dragoman.inference.load import load
from dragoman.inference.system import System
from dragoman.recipe.arguments import with_known_arguments

FORMATS = {
    "portable": export_portable,
    "page": export_page,
    "node": export_node,
    "onnx": export_onnx,
    "ctranslate2": export_ctranslate2,
}


@with_known_arguments
def export_run(
    run: PathLike | System,
    to: str,
    out: PathLike | None = None,
    *,
    inputs: Sequence[Any] | None = None,
    rows: int = 200,
    int8: bool = False,
) -> Parity:
    """Export a run, compare it with the run on real inputs, and return the figures.

    ``out`` is the folder to write, by default one of the format's name in the run's folder. ``inputs``
    are what both are asked, at most ``rows`` of them: inputs like those that the run was trained on, by
    default its dev rows. Nothing is written if the export does not say the same.
    """
    if to not in FORMATS:
        raise UserError(f"to = {to!r}: there is no such format; choose from: {', '.join(FORMATS)}")
    system = run if isinstance(run, System) else load(run, device="cpu", engine="torch")
    if system.engine.describe_members() is not None:
        raise UserError("what is put together from several runs cannot be exported; export each run")
    folder = Path(out) if out is not None else None if system.folder is None else system.folder / to
    if folder is None:
        raise UserError("this system has no folder; say where to write the export (out)")
    given = own_inputs(system, rows) if inputs is None else list(inputs)[:rows]
    return FORMATS[to](system, folder, given, int8=int8)


def own_inputs(system: System, rows: int) -> list[Any]:
    """Return up to ``rows`` sources of the run's dev rows; of a language model, the prompt that is empty."""
    if system.is_language_model:
        return [""]
    try:
        examples = [] if system.folder is None else read_dev_examples(system, system.folder, rows)
    except UserError:
        examples = []
    if not examples:
        raise UserError(
            f"{system.name}: its dev rows are no longer where they were, so the export cannot be checked; name a file "
            "of inputs like those it was trained on (--inputs), or in Python give the inputs themselves (inputs)"
        )
    return [as_input(example) for example in examples]


def read_inputs(system: System, files: Sequence[str], rows: int) -> list[Any]:
    """Return the sources of up to ``rows`` rows of a file that is read as the run's data was."""
    return [as_input(example) for example in read_examples(system, list(files)).examples[:rows]]


def as_input(example: Example) -> Any:
    """Return the source of an example, or its sources by name, as inputs are given; without source, a prompt."""
    sources = dict(example.sources)
    if not sources:
        return " ".join(example.target.split()[:2])
    return next(iter(sources.values())) if len(sources) == 1 else sources
