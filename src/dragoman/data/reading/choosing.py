"""Choose the columns of the sides among the candidates: those selected, and those inferred."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dragoman.config import nearest
from dragoman.data.examples import SOURCE, TARGET
from dragoman.data.reading.columns import ColumnName, ColumnSelection
from dragoman.data.reading.headers import (
    FILE_TARGET_NAMES,
    LONGEST_NAME,
    SOURCE_NAMES,
    TARGET_NAMES,
    usual_column,
)
from dragoman.errors import UserError

PROPOSED = 3  # most columns for which a proposal uses every one


@dataclass(frozen=True, slots=True)
class Candidates:
    """The columns among which the sides are chosen, and what a message says of them."""

    where: str
    width: int  # of the table
    columns: tuple[int, ...]  # that may be sides
    shown: tuple[str, ...] | None  # names for messages, which may be no more than the cells of a first row
    files: Sequence[int]  # columns of paths
    what: str
    in_memory: bool = False  # the table is an argument in Python
    first_row: tuple[str, ...] | None = None  # its cells, if it may be a header or data

    def describe(self) -> str:
        """Return how many there are, with their names."""
        # a row may have more cells than the row that the names are from
        shown = self.shown if self.shown is None or len(self.shown) > max(self.columns, default=0) else None
        if self.first_row is not None:
            shown = None
        names = "" if shown is None else f" ({', '.join(shown[column] for column in self.columns[:12])})"
        return f"{self.where}: {len(self.columns)} {self.what}{names}"

    def advise(self, sources: Sequence[int], target: int | None) -> str:
        """Return how to select columns, as an example: these ones."""
        if self.first_row is None:
            return f"say which, for example: {self.options(sources, target)}"
        cells = " | ".join(shorten_names(self.first_row[:12]))
        by_number = replace(self, shown=None).options(sources, target)
        if self.shown is None:
            return f"say which by number, for example: {by_number}; the first row is: {cells}"
        return (
            f"say which. The first row is: {cells}. If it names the columns, select them by name, for example: "
            f"{self.options(sources, target)}; if it is data, by number: {by_number}"
        )

    def propose(self, usual_target: int | None) -> str:
        """Return how to select source and target, with an example."""
        columns = list(self.columns) if len(self.columns) > 1 else list(range(self.width))
        target = usual_target if usual_target in columns else columns[-1]
        sources = [column for column in columns if column != target]
        return self.advise(sources if len(columns) <= PROPOSED else sources[:1], target)

    def options(self, sources: Sequence[int], target: int | None) -> str:
        """Return the options, of the command line or in Python, that select these columns."""
        if self.in_memory:
            names = [self._argument(column) for column in sources]
            given = [f"source={names[0]}" if len(names) == 1 else f"source=[{', '.join(names)}]"] if names else []
            return ", ".join(given if target is None else [*given, f"target={self._argument(target)}"])
        words = [f"--source {self._name(column)}" for column in sources]
        return " ".join(words if target is None else [*words, f"--target {self._name(target)}"])

    def _name(self, column: int) -> str:
        name = self._unique_name(column)
        return str(column + 1) if name is None else shlex.quote(name)

    def _argument(self, column: int) -> str:
        name = self._unique_name(column)
        return str(column + 1) if name is None else json.dumps(name, ensure_ascii=False)

    def _unique_name(self, column: int) -> str | None:
        """Return the name that selects a column; None if only its number does."""
        if self.shown is None or column >= len(self.shown):
            return None
        name = self.shown[column]
        return None if self.shown.count(name) > 1 or name.isdecimal() else name


def choose(
    selection: ColumnSelection, candidates: Candidates, names: Sequence[str] | None
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the column numbers (from 0) and names of the sides, the target last."""
    where, width = candidates.where, candidates.width
    if not width:
        raise UserError(f"{where}: the rows have no columns; give a table with a source and a target")
    source, usual_target = usual_column(names or [], SOURCE_NAMES), usual_column(names or [], TARGET_NAMES)
    if len(candidates.files) == 1:
        source, usual_target = _file_and_partner(names or [], candidates.files[0])
    sources = {name: locate(column, names, width, where) for name, column in (selection.sources or {}).items()}
    target = None if selection.target is None else locate(selection.target, names, width, where)
    if selection.sources is None and target is None:
        if source is None or usual_target is None:
            if len(candidates.columns) != 2:
                raise UserError(
                    f"{candidates.describe()}, and which are source and target is not clear; "
                    f"{candidates.propose(usual_target)}"
                )
            files = [column for column in candidates.files if column in candidates.columns]
            source = candidates.columns[0] if len(files) != 1 else files[0]
            usual_target = next(column for column in candidates.columns if column != source)
        return (source, usual_target), (SOURCE, TARGET)
    if selection.sources is None:
        sources = {SOURCE: _other([target], source, candidates, SOURCE, usual_target)}
    if target is None:
        target = _other(list(sources.values()), usual_target, candidates, TARGET, usual_target)
    return (*sources.values(), target), (*sources, TARGET)


def _other(
    taken: Sequence[int | None], usual: int | None, candidates: Candidates, side: str, usual_target: int | None
) -> int:
    """Return the column of the side that was not selected."""
    if usual is not None and usual not in taken:
        return usual
    free = [column for column in candidates.columns if column not in taken]
    if len(free) != 1:
        given = [column for column in taken if column is not None]
        if side == SOURCE:
            few = len(free) + len(given) <= PROPOSED
            advice = candidates.advise(free if few else free[:1], given[0] if given else None)
        else:
            advice = candidates.advise([], usual_target if usual_target in free else free[-1] if free else given[-1])
        raise UserError(f"{candidates.describe()}, and which is the {side} is not clear; {advice}")
    return free[0]


def _file_and_partner(names: Sequence[str], file: int) -> tuple[int | None, int | None]:
    """Return source and target of a table with one column of files; None where unclear."""
    target = usual_column(names, TARGET_NAMES)
    for name in FILE_TARGET_NAMES:
        target = usual_column(names, frozenset((name,))) if target is None else target
    texts = [column for column, name in enumerate(names) if name.strip().casefold() in SOURCE_NAMES]
    return (None if set(texts) - {file, target} else file), target


def locate(column: ColumnName, names: Sequence[str] | None, width: int, where: str) -> int:
    """Return the place from 0 of a column that is selected by name or number."""
    if isinstance(column, str) and names and column in names:
        if names.count(column) > 1:
            raise UserError(f"{where}: {names.count(column)} columns are called {column!r}; use a number")
        return names.index(column)
    if isinstance(column, str) and not column.isdecimal():
        raise UserError(f"{where}: no column is called {column!r}; {nearest_name(column, list(names or []))}")
    if not 1 <= int(column) <= width:
        raise UserError(f"{where}: column {column} is asked for, but there are {width}; count from 1")
    return int(column) - 1


def nearest_name(name: str, names: Sequence[str]) -> str:
    """Return a hint for a misspelt name. Long names, which may be data, are shortened."""
    return nearest(name, shorten_names(names))


def shorten_names(names: Sequence[str]) -> list[str]:
    """Return the first names, short enough for a message."""
    return [name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…" for name in names[:20]]
