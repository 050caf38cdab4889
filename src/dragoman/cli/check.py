"""The verb ``check``: the audit of a data set, without training."""

from __future__ import annotations

import importlib.util
import pkgutil
import sys
from typing import Annotated

import typer

from dragoman.cli.counting import LiveCount, is_terminal
from dragoman.cli.messages import Quiet, terminal_width
from dragoman.cli.options import (
    Files,
    Json,
    Root,
    SourceColumn,
    TargetColumn,
    parse_column,
    parse_columns,
    print_json,
)


def _modality_kinds() -> str:
    """Return the kinds of modalities in words: the files of their folder, which help must not import."""
    spec = importlib.util.find_spec("dragoman.modalities")
    folders = spec.submodule_search_locations if spec else None
    names = [module.name for module in pkgutil.iter_modules(folders)]
    kinds = sorted(name for name in names if not name.startswith("_"))
    return f"{', '.join(kinds[:-1])} or {kinds[-1]}"


def check(
    files: Files,
    dev: Annotated[str | None, typer.Option(help="Dev file to check for overlap with FILE.")] = None,
    test: Annotated[str | None, typer.Option(help="Test file to check for overlap with FILE.")] = None,
    source: SourceColumn = None,
    target: TargetColumn = None,
    root: Root = None,
    kind: Annotated[
        str | None,
        typer.Option(help=f"Kind of the source, if file names do not tell: {_modality_kinds()}."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Read the data as this preset does, e.g. lm-rnn for plain text.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Change a setting of the data, e.g. data.format=tsv. May be repeated.", metavar="KEY=VALUE"
        ),
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Audit the data before training: dropped and repaired rows, lengths, overlap with dev and test."""
    from dragoman.cli.preparing import PreparationDisplay
    from dragoman.recipe import check as checking

    preparation = PreparationDisplay(quiet)
    count = LiveCount("rows read", shown=is_terminal("stderr") and not quiet)

    def show_stage(stage: str, done: int, total: int | None) -> None:
        count.close()  # one display at a time: from here on, the stages count the rows
        preparation(stage, done, total)

    try:
        checked = checking.check(
            files,
            dev,
            test,
            source=parse_columns(source),
            target=None if target is None else parse_column(target),
            root=root,
            kind=kind,
            preset=preset,
            settings=settings or [],
            on_row=count,
            on_progress=show_stage,
        )
    finally:
        count.close()
        preparation.close()
    if as_json:
        print_json(checked.to_json())
    else:
        typer.echo(checked.to_text(terminal_width(sys.stdout)), nl=False)
