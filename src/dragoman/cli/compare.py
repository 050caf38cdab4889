"""The verb ``compare``: which of several runs is better, and how certain that is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from dragoman.cli.measuring import read_corpus
from dragoman.cli.messages import Messages, Quiet, terminal_width
from dragoman.cli.options import Beam, Device, Json, Root, SourceColumn, TargetColumn, print_json


def compare(
    paths: Annotated[
        list[str],
        typer.Argument(
            help="Folders of two or more runs, or of the seeds of a run; then a file with references, which is read "
            "as the first run reads it.",
            metavar="PATH",
            show_default=False,
        ),
    ],
    beam: Beam = None,
    source: SourceColumn = None,
    target: TargetColumn = None,
    root: Root = None,
    as_json: Json = False,
    device: Device = "auto",
    quiet: Quiet = False,
) -> None:
    """Compare runs on the same rows: which is better, how certainly, and where do two of them differ?

    Every run is compared with the first one. A folder of seeds counts as one model.
    """
    from dragoman.evaluation import verbs
    from dragoman.evaluation.compare import Comparison

    Messages.of(quiet, verbose=False)
    folders, files = split_arguments(paths)
    entrants = verbs.open_entrants(folders, device)
    corpus = read_corpus(entrants[0].systems[0], files, source, target, root)
    comparison = verbs.compare_entrants(entrants, corpus.examples, verbs.describe_data(files), beam)
    if as_json:
        print_json(comparison.to_json())
    else:
        width = terminal_width(sys.stdout)
        text = comparison.to_text(width) if isinstance(comparison, Comparison) else comparison.to_text()
        typer.echo(text, nl=False)


def split_arguments(paths: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Return the folders of runs, which come first, and the files after them."""
    from dragoman.errors import UserError
    from dragoman.runs.groups import is_run
    from dragoman.runs.setup import describe_folder

    folders: list[Path] = []
    for path in paths:
        if not is_run(Path(path)):
            break
        folders.append(Path(path))
    files = list(paths[len(folders) :])
    late = next((path for path in files if is_run(Path(path))), None)
    if late is not None:
        raise UserError(f"{files[0]}: is not the folder of a run, but a run follows it ({late}); name all runs first")
    if len(folders) < 2:
        rest = f"; {files[0]} is not the folder of a run" if files else ""
        if files and Path(files[0]).is_dir():
            rest = f"; {describe_folder(Path(files[0]))}"
        raise UserError(f"compare needs the folders of two runs or more, then a file{rest}")
    if not files:
        raise UserError(f"compare needs a file with references after the runs, for example {folders[-1]} test.tsv")
    return folders, files
