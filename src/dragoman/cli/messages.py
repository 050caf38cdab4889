"""How much a command says on standard error besides its errors: ``--quiet`` and ``--verbose``."""

from __future__ import annotations

import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, TextIO

import typer

from dragoman.errors import UnfinishedRun, UserError

FULL_WIDTH = 200  # columns of what is no terminal: nothing is folded for it

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print more about what is done and with what settings.")]


@dataclass(frozen=True, slots=True)
class Messages:
    """What a command says on standard error. Errors and results do not go through it."""

    quiet: bool = False
    verbose: bool = False

    @classmethod
    def of(cls, quiet: bool, verbose: bool) -> Messages:
        """Return the messages that the two options ask for."""
        if quiet and verbose:
            raise UserError("--quiet and --verbose contradict each other; give one of them")
        if quiet:
            warnings.simplefilter("ignore", UnfinishedRun)  # until the command ends
        return cls(quiet, verbose)

    def note(self, text: str) -> None:
        """Print what people usually want to know."""
        if not self.quiet:
            typer.echo(text, err=True)

    def detail(self, text: str) -> None:
        """Print what is wanted with ``--verbose`` only."""
        if self.verbose:
            typer.echo(text, err=True)


def terminal_width(stream: TextIO) -> int:
    """Return the columns of the terminal that the stream writes to, or many if it writes elsewhere."""
    return shutil.get_terminal_size().columns if stream.isatty() else FULL_WIDTH


@contextmanager
def progress_bar(what: str, messages: Messages) -> Iterator[Callable[[int, int], None]]:
    """Yield a function that shows how many of how many inputs are done, on a terminal only."""
    if messages.quiet or not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
