"""The verb ``serve``: a server that answers over HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dragoman.cli.options import Device, Engine


def serve(
    runs: Annotated[
        list[str],
        typer.Argument(
            help="Folders of runs, each with a name if wanted: NAME=FOLDER.", metavar="RUN", show_default=False
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on.", show_default="8500, or a free one")
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Name that the server answers as, besides its address; * is any. May be repeated.", metavar="NAME"
        ),
    ] = None,
    languages: Annotated[
        list[str] | None,
        typer.Option(
            help="Languages of a run for /translate, such as de:en; repeat it in the order of the runs.",
            metavar="SOURCE:TARGET",
            show_default="the end of the folder's name, such as de-en",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes that compute, which share the weights.", show_default="one per core"),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Most inputs that are computed together.")] = 32,
    queue: Annotated[int, typer.Option(min=1, help="Most inputs that wait; further ones get status 429.")] = 512,
    deadline: Annotated[float, typer.Option(min=0.1, help="Seconds in which a request has to be answered.")] = 30.0,
    api_key_file: Annotated[
        Path | None,
        typer.Option(help="File with the keys that clients may show, one on each line.", show_default="no key"),
    ] = None,
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Write inputs and outputs to the log too.")] = False,
    device: Device = "auto",
    engine: Engine = "auto",
) -> None:
    """Answer requests over HTTP, many at a time. The log is JSON on standard error.

    The environment variable DRAGOMAN_API_KEY is a key too. SIGTERM ends the server when all accepted requests are
    answered.
    """
    from dataclasses import replace

    from dragoman.serving.limits import SERVER
    from dragoman.serving.server import serve as start

    start(
        runs,
        host=host,
        port=port,
        allow_hosts=allow_host or (),
        languages=languages or (),
        workers=workers,
        limits=replace(SERVER, batch=batch, waiting=queue, question_seconds=deadline),
        key_file=api_key_file,
        log_texts=log_texts,
        device=device,
        engine=engine,
        say=lambda sentence: typer.echo(sentence, err=True),
    )
