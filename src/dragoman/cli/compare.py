"""The verb ``compare``: which of several runs is better, and how certain that is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.cli.evaluate import read_corpus
from dragoman.cli.options import Beam, Device, Json, Root, SourceColumn, TargetColumn, print_json

if TYPE_CHECKING:
    from dragoman.evaluation.compare import Comparison
    from dragoman.evaluation.several import SeveralComparison


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
) -> None:
    """Compare runs on the same rows: which is better, how certainly, and where do two of them differ?

    Every run is compared with the first one. A folder of seeds counts as one model.
    """
    from dragoman.evaluation.compare import compare_systems
    from dragoman.evaluation.several import Entrant, compare_several
    from dragoman.inference.load import load
    from dragoman.runs.groups import runs_of

    folders, files = split_arguments(paths)
    names = name_runs(folders)
    entrants = [
        Entrant(name, [load(run, device) for run in runs_of(folder)])
        for name, folder in zip(names, folders, strict=True)
    ]
    corpus = read_corpus(entrants[0].systems[0], files, source, target, root)
    label = " ".join(files)
    comparison: Comparison | SeveralComparison
    if len(entrants) == 2 and all(len(entrant.systems) == 1 for entrant in entrants):
        first, second = (entrant.systems[0] for entrant in entrants)
        comparison = compare_systems(first, second, corpus.examples, label, (names[0], names[1]), beam)
    else:
        comparison = compare_several(entrants, corpus.examples, label, beam)
    if as_json:
        print_json(comparison.to_json())
    else:
        typer.echo(comparison.to_text(), nl=False)


def split_arguments(paths: Sequence[str]) -> tuple[list[Path], list[str]]:
    """Return the folders of runs, which come first, and the files after them."""
    from dragoman.errors import UserError
    from dragoman.runs.groups import is_run

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
        raise UserError(f"compare needs the folders of two runs or more, then a file{rest}")
    if not files:
        raise UserError(f"compare needs a file with references after the runs, for example {folders[-1]} test.tsv")
    return folders, files


def name_runs(folders: Sequence[Path]) -> list[str]:
    """Return the names of the folders, or their paths where two names are the same."""
    names = [folder.resolve().name for folder in folders]
    return names if len({*names}) == len(names) else [str(folder) for folder in folders]
