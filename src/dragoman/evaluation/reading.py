"""Read a file of examples the way a run's own training files were read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dragoman.data.reading.read import Corpus, DataSource, read
from dragoman.errors import UserError
from dragoman.inference.system import System
from dragoman.parts import kind_of

Column = str | int  # a name, or a number from 1


def read_examples(
    system: System,
    data: DataSource,
    *,
    source: Sequence[Column] = (),
    target: Column | None = None,
    root: str | None = None,
    on_row: Callable[[int], object] | None = None,
) -> Corpus:
    """Read files or a table in memory with the settings that the system was trained with.

    ``source`` (a column for each source, in the system's order), ``target`` (a column) and ``root``
    (the folder that paths start from) replace the settings of the same name. ``on_row`` is called
    with the number of rows read so far.
    """
    names = list(system.modalities)
    if source and system.is_language_model:
        raise UserError("--source: this run is a language model and reads no source")
    if source and len(source) != len(names):
        raise UserError(f"--source: this run reads {', '.join(names)}; give a column for each, in this order")
    changes: dict[str, Any] = {"source": dict(zip(names, source, strict=True))} if source else {}
    changes |= {key: value for key, value in (("target", target), ("root", root)) if value is not None}
    return read(data, system.recipe.reading.model_copy(update=changes), source_kinds(system), on_row)


def source_kinds(system: System) -> dict[str, str]:
    """Return the kind of every source by name: text, image, speech or features."""
    return {name: kind_of(source.modality) for name, source in system.recipe.sources.items()}
