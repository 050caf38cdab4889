"""The verb ``studio``: the local server of the page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dragoman.cli.options import Device


def studio(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Folders of runs, or a folder that contains them.", metavar="RUN", show_default=False),
    ],
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on.", show_default="8400, or a free one")
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in the browser.")] = True,
    device: Device = "auto",
) -> None:
    """Look inside runs in the browser. The page is served on this machine only."""
    from dragoman.studio.server import serve

    serve(runs, port, browser, device, lambda sentence: typer.echo(sentence, err=True))
