"""The verb ``boost``: an ensemble of seeds, folded into one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dragoman.cli.messages import Messages, Quiet
from dragoman.cli.options import Files, SourceColumn, TargetColumn, parse_column, parse_columns


def boost(
    files: Files,
    dev: Annotated[str | None, typer.Option(help="Dev file. Without one, a share of the rows is held out.")] = None,
    test: Annotated[str | None, typer.Option(help="Test file, evaluated at the end.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.", show_default="runs/NAME")] = None,
    seeds: Annotated[int, typer.Option(min=2, help="Number of runs of the ensemble.")] = 3,
    sources: Annotated[
        Path | None, typer.Option(help="Text file with more sources, which the ensemble labels.", metavar="FILE")
    ] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Learn the ensemble's probabilities of each token too.")
    ] = False,
    preset: Annotated[str | None, typer.Option(help="A published system by name.", show_default="auto")] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with settings.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting, e.g. decoder.width=512. May be repeated.", metavar="KEY=VALUE"),
    ] = None,
    source: SourceColumn = None,
    target: TargetColumn = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="The most runs that train at once.", show_default="one for each core")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start again; an old run in the same folder is renamed.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Train several seeds, and fold their ensemble into one model of the same size.

    Ctrl-C stops and saves. The same command resumes where it stopped.
    """
    from dragoman.process.signals import stop_on_signal
    from dragoman.training import boosting
    from dragoman.training.group_display import choose_display

    messages = Messages.of(quiet, False)
    with stop_on_signal() as should_stop:
        try:
            boosted = boosting.boost(
                files, dev, test, out=out, seeds=seeds, sources=sources, tokens=tokens, preset=preset,
                config=config, settings=settings or [], source=parse_columns(source),
                target=None if target is None else parse_column(target), workers=workers, fresh=fresh,
                display=choose_display(quiet), should_stop=should_stop,
            )  # fmt: skip
        except KeyboardInterrupt:
            messages.note("stopped; everything is saved, and the same command resumes from here")
            raise typer.Exit(130) from None
    typer.echo(boosted.to_text())
    typer.echo(f"saved in {boosted.system.folder}")
