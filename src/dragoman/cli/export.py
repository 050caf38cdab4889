"""The verb ``export``: a run as files that other programs can run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dragoman.cli.options import Run


def export(
    run: Run,
    to: Annotated[
        str,
        typer.Option(
            "--to", help="Format: portable (one file), page (HTML), node, onnx or ctranslate2.", show_default=False
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder to write.", show_default="a folder of the format's name in the run's"),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        typer.Option(
            "--inputs",
            help="File with inputs to compare export and run on, read as the training data was.",
            show_default="the run's dev rows",
        ),
    ] = None,
    rows: Annotated[int, typer.Option("--rows", min=1, help="The most inputs to compare on.")] = 200,
    int8: Annotated[bool, typer.Option("--int8", help="Store weights with 8 bits: smaller, nearly the same.")] = False,
) -> None:
    """Write a run as files that run without torch, and check that they answer as the run does.

    If an answer differs, nothing is written and the exit code is 2. Otherwise the figures of the comparison are
    printed, and written beside the export.
    """
    from dragoman.export import verbs
    from dragoman.inference.load import load

    system = load(run, device="cpu", engine="torch")
    given = verbs.read_inputs(system, inputs, rows) if inputs else None
    folder = out or run / to
    parity = verbs.export_run(system, to, folder, inputs=given, rows=rows, int8=int8)
    typer.echo(f"{folder}: {parity.to_text()}")
