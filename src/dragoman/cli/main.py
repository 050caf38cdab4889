"""The program ``dragoman``: its verbs, its version and its exit codes."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from dragoman.cli.align import align
from dragoman.cli.augment import augment
from dragoman.cli.boost import boost
from dragoman.cli.calibrate import calibrate
from dragoman.cli.check import check
from dragoman.cli.compare import compare
from dragoman.cli.evaluate import evaluate, score
from dragoman.cli.export import export
from dragoman.cli.help import PlainCommand, PlainGroup
from dragoman.cli.inspect import inspect, report
from dragoman.cli.parts import parts
from dragoman.cli.predict import predict
from dragoman.cli.serve import serve
from dragoman.cli.studio import studio
from dragoman.cli.sweep import sweep
from dragoman.cli.train import train

VERBS = (
    check,
    train,
    sweep,
    augment,
    boost,
    predict,
    evaluate,
    score,
    align,
    calibrate,
    inspect,
    compare,
    report,
    export,
    studio,
    serve,
    parts,
)  # in the order of the help


def print_version(requested: bool) -> None:
    """Print the version and exit, if ``--version`` was given."""
    if requested:
        from dragoman import __version__

        typer.echo(f"dragoman {__version__}")
        raise typer.Exit


def common_options(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Accept the options that stand before a verb; its help is that of ``app``."""


def make_app(verbs: Iterable[Callable[..., None]]) -> typer.Typer:
    """Return the command line with some verbs."""
    made = typer.Typer(
        name="dragoman",
        cls=PlainGroup,
        help="Train, measure and use sequence-to-sequence models from your own paired files.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    made.callback()(common_options)
    for verb in verbs:
        made.command(cls=PlainCommand)(verb)
    return made


app = make_app(VERBS)


def app_for(arguments: Sequence[str]) -> typer.Typer:
    """Return the command line for some arguments. With the verb that they name alone it is built in less time."""
    named = [verb for verb in VERBS if arguments and verb.__name__ == arguments[0]]
    return make_app(named) if named else app


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print the program's own warnings as sentences, without the line of code that gives them."""
    from dragoman.errors import OtherSearch, UnfinishedRun, Unverified

    show_usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, UnfinishedRun | Unverified | OtherSearch):
            print(f"dragoman: {message}", file=sys.stderr)
        else:
            show_usual(message, category, *place, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", UnfinishedRun)
        warnings.simplefilter("always", Unverified)
        warnings.showwarning = show
        yield


def main() -> None:
    """Run the command line and exit.

    Exit codes: 0 for success; 1 for a fault of the program, or inputs that could not be read; 2 for
    a mistake in the command, the settings or the data; 130 for an interruption.
    """
    from dragoman.errors import ReportedError, UserError
    from dragoman.process import prepare

    prepare()
    try:
        with plain_warnings():
            app_for(sys.argv[1:])()
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
    except MemoryError:
        print("dragoman: there is not enough memory for this; give less at once, or a smaller model", file=sys.stderr)
        sys.exit(UserError.exit_code)
    except OSError as error:  # e.g. a full disk, a folder without write permission
        # what is written to files names them, so a full disk without a name is that of the output
        where = error.filename or ("standard output" if error.errno == errno.ENOSPC else "")
        if where == "standard output":  # what is left of it must not fail once more at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        print(f"dragoman: {where}{where and ': '}{error.strerror or error}", file=sys.stderr)
        sys.exit(UserError.exit_code)


if __name__ == "__main__":
    main()
