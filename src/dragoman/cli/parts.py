"""The verb ``parts``: the catalogue of everything that a config can name."""

from __future__ import annotations

from typing import Annotated

import typer

from dragoman.cli.options import Json, print_json


def parts(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A family or a kind, e.g. decoder or decoder.rnn.", metavar="NAME", show_default="everything"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List everything that a config can name: kinds with their options, other settings, presets."""
    from dragoman.recipe import catalog

    entries = catalog.select(name)
    if as_json:
        print_json(catalog.to_json(entries))
    else:
        typer.echo(catalog.to_text(entries))
