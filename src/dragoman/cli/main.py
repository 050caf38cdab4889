"""The program ``dragoman``: its verbs, its version and its exit codes."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from dragoman.cli.check import check
from dragoman.cli.compare import compare
from dragoman.cli.evaluate import evaluate, score
from dragoman.cli.inspect import inspect, report
from dragoman.cli.parts import parts
from dragoman.cli.predict import predict
from dragoman.cli.studio import studio
from dragoman.cli.sweep import sweep
from dragoman.cli.train import train

VERBS = (
    check,
    train,
    sweep,
    predict,
    evaluate,
    score,
    inspect,
    compare,
    report,
    studio,
    parts,
)  # in the order of the help

app = typer.Typer(
    name="dragoman",
    help="Train, measure and use sequence-to-sequence models from your own paired files.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def print_version(requested: bool) -> None:
    """Print the version and exit, if ``--version`` was given."""
    if requested:
        from dragoman import __version__

        typer.echo(f"dragoman {__version__}")
        raise typer.Exit


@app.callback()
def common_options(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Accept the options that stand before a verb; its help is that of ``app``."""


for verb in VERBS:
    app.command()(verb)


def main() -> None:
    """Run the command line and exit.

    Exit codes: 0 for success; 1 for a fault of the program, or inputs that could not be read; 2 for
    a mistake in the command, the settings or the data; 130 for an interruption.
    """
    from dragoman.errors import ReportedError, UserError
    from dragoman.process import prepare

    prepare()
    try:
        app()
    except ReportedError as error:
        sys.exit(error.exit_code)
    except UserError as error:
        print(f"dragoman: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # the reader of the output has gone, e.g. head
        sys.stderr.close()
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:  # e.g. a full disk, a folder without write permission
        where = f"{error.filename}: " if error.filename else ""
        print(f"dragoman: {where}{error.strerror or error}", file=sys.stderr)
        sys.exit(UserError.exit_code)


if __name__ == "__main__":
    main()
