"""The verb ``align``: choose which attention map the alignments of a run are read from."""

from __future__ import annotations

import typer

from dragoman.cli.options import Device, Files, Json, Root, Run, SourceColumn, TargetColumn, parse_column, print_json


def align(
    run: Run,
    files: Files,
    source: SourceColumn = None,
    target: TargetColumn = None,
    root: Root = None,
    as_json: Json = False,
    device: Device = "auto",
) -> None:
    """Choose which attention map the alignments of a run are read from, by pairs like those it was trained on.

    Training does this at its end. This is for runs of earlier versions, or for other pairs. The choice is written into
    the folder of the run.
    """
    from dragoman.evaluation import verbs

    choice = verbs.align(
        run,
        files,
        source=[parse_column(name) for name in source or []],
        target=None if target is None else parse_column(target),
        root=root,
        device=device,
    )
    if as_json:
        print_json(choice.to_json())
    else:
        typer.echo(choice.to_text())
