"""What ``evaluate`` and ``calibrate`` have in common: their options, and the rows with references that they read."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, get_type_hints

import typer

from dragoman.cli.messages import Messages, Quiet, Verbose
from dragoman.cli.options import (
    CTC,
    BatchSize,
    Beam,
    Device,
    Engine,
    Ensemble,
    Files,
    Json,
    LanguageModel,
    LanguageModelWeight,
    Root,
    Run,
    SourceColumn,
    TargetColumn,
    Workers,
    parse_column,
)

if TYPE_CHECKING:
    from dragoman.data.reading.read import Corpus
    from dragoman.inference.system import System


@dataclass(frozen=True, slots=True)
class Measuring:
    """The options of a verb that decodes rows with references."""

    run: Run
    files: Files
    beam: Beam = None
    ctc: CTC = None
    batch: BatchSize = 64
    workers: Workers = None
    source: SourceColumn = None
    target: TargetColumn = None
    root: Root = None
    as_json: Json = False
    ensemble: Ensemble = None
    lm: LanguageModel = None
    lm_weight: LanguageModelWeight = None
    device: Device = "auto"
    engine: Engine = "auto"
    quiet: Quiet = False
    verbose: Verbose = False

    @property
    def messages(self) -> Messages:
        """Return how much the verb says on standard error."""
        return Messages.of(self.quiet, self.verbose)

    def decoding(self) -> dict[str, Any]:
        """Return how the rows are decoded: arguments of the functions that do it."""
        return {"batch": self.batch, "workers": self.workers, "beam": self.beam, "ctc": self.ctc}

    def read(self, system: System) -> Corpus:
        """Read the files as the run's training files were read."""
        return read_corpus(system, self.files, self.source, self.target, self.root)


def takes_measuring(verb: Callable[[Measuring], None]) -> Callable[..., None]:
    """Return the verb as a function with a parameter for each field of ``Measuring``, which typer makes options of."""
    hints = get_type_hints(Measuring, include_extras=True)

    @wraps(verb)
    def called(**given: Any) -> None:
        verb(Measuring(**given))

    called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(
                each.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=inspect.Parameter.empty if each.default is MISSING else each.default,
                annotation=hints[each.name],
            )
            for each in fields(Measuring)
        ]
    )
    called.__annotations__ = {each.name: hints[each.name] for each in fields(Measuring)}
    del called.__wrapped__
    return called


def read_corpus(
    system: System, files: list[str], source: list[str] | None, target: str | None, root: str | None
) -> Corpus:
    """Read the files as the run's training files were read, and name the first broken ones."""
    from dragoman.data.audit.audit import BROKEN_SHOWN
    from dragoman.evaluation.reading import read_examples

    corpus = read_examples(
        system,
        files,
        source=[parse_column(name) for name in source or []],
        target=None if target is None else parse_column(target),
        root=root,
    )
    for place in corpus.audit.broken[:BROKEN_SHOWN]:
        typer.echo(str(place), err=True)
    return corpus
