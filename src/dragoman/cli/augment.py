"""The verb ``augment``: more training rows from the same ones, as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dragoman.cli.options import Files, SourceColumn, TargetColumn, parse_column, parse_columns


def augment(
    files: Files,
    dev: Annotated[str | None, typer.Option(help="Dev file. Without one, a share of the rows is held out.")] = None,
    test: Annotated[str | None, typer.Option(help="Test file. None of its sources is made.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Table to write, a TSV file.")] = None,
    hallucinate: Annotated[
        int | None, typer.Option(min=1, help="Make so many rows with made-up words.", metavar="N")
    ] = None,
    copy_targets: Annotated[
        bool | None, typer.Option("--copy-targets", help="Make rows that copy each distinct target.")
    ] = None,
    both_ways: Annotated[
        bool | None, typer.Option("--both-ways", help="Make rows that go from target to source.")
    ] = None,
    sources: Annotated[
        Path | None, typer.Option(help="Text file with more sources, which --model labels.", metavar="FILE")
    ] = None,
    targets: Annotated[
        Path | None,
        typer.Option(help="Text file with more targets, for --reverse-model or to be copied.", metavar="FILE"),
    ] = None,
    model: Annotated[Path | None, typer.Option(help="Run that makes targets for --sources.", metavar="RUN")] = None,
    reverse_model: Annotated[
        Path | None, typer.Option(help="Run from target to source, which makes sources for --targets.", metavar="RUN")
    ] = None,
    source: SourceColumn = None,
    target: TargetColumn = None,
    seed: Annotated[int | None, typer.Option(help="Seed for the made-up words.", show_default="1")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Change a setting of the data, e.g. data.format=tsv. May be repeated.", metavar="KEY=VALUE"
        ),
    ] = None,
) -> None:
    """Make more training rows from the same ones, and write them to a file.

    The data is split as train splits it; rows are made of its training side alone. To train with the
    file: --set data.augment.rows=FILE.
    """
    from dragoman.training import augmenting

    made = augmenting.augment(
        files, dev, test, out=out, hallucinate=hallucinate, copy_targets=copy_targets, both_ways=both_ways,
        sources=sources, targets=targets, model=model, reverse_model=reverse_model,
        source=parse_columns(source), target=None if target is None else parse_column(target), seed=seed,
        settings=settings or [],
    )  # fmt: skip
    typer.echo(str(made), err=True)
    if made.out is None:
        for row in made.rows:
            typer.echo("\t".join(row))
    else:
        typer.echo(f"saved in {made.out}; to train with it: --set data.augment.rows={made.out}", err=True)
