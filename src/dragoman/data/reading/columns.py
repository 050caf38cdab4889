"""Which column, or key, is which side: selected by name or number, or inferred and noted.

Inference is conservative. A first line is taken for a header only if the columns were selected by
names that are in it, or if exactly one of its cells is a usual name for a source and exactly one a
usual name for a target and neither cell occurs in that column again, or if it has no path where the
lines below have paths of files. A single column of paths is the source. Where the columns have
names and types of their own, those with text are the candidates. The audit notes whatever is
decided, and names the columns that are not used.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from dragoman.config import nearest
from dragoman.data.examples import SOURCE, TARGET
from dragoman.data.reading.headers import (
    FILE_TARGET_NAMES,
    LONGEST_NAME,
    SOURCE_NAMES,
    TARGET_NAMES,
    as_names,
    file_columns,
    is_header,
    look_like_names,
    usual_column,
)
from dragoman.data.reading.table import Record, Table
from dragoman.data.reading.text_files import are_quoted
from dragoman.data.reading.values import is_missing, is_text, to_text
from dragoman.errors import UserError

ColumnName: TypeAlias = "int | str"
Header = Literal["auto", "yes", "no"]
Sample: TypeAlias = "Sequence[tuple[int, Record]]"  # the first readable rows of a table, with their numbers

_PROPOSED = 3  # most columns for which a proposal uses every one


@dataclass(frozen=True, slots=True)
class ColumnSelection:
    """The columns that the config selects.

    ``sources`` is None where they are to be inferred, and empty where there is no source.
    """

    sources: Mapping[str, ColumnName] | None
    target: ColumnName | None

    def columns(self) -> list[ColumnName]:
        """Return all selected columns."""
        wanted = [] if self.sources is None else list(self.sources.values())
        return wanted if self.target is None else [*wanted, self.target]

    def names(self) -> list[str]:
        """Return the columns selected by name. A number written as text is a number."""
        return [column for column in self.columns() if isinstance(column, str) and not column.isdecimal()]


@dataclass(frozen=True, slots=True)
class TableLayout:
    """Which columns of a table are the sides."""

    sources: tuple[str, ...]  # names
    columns: tuple[int, ...]  # from 0: one for each source, then the target
    names: tuple[str, ...] | None  # of all columns, if they have names
    width: int  # columns every row must have
    header: int | None  # the number of the row that is a header
    notes: tuple[str, ...]


def find_layout(table: Table, sample: Sample, first: int, selection: ColumnSelection, header: Header) -> TableLayout:
    """Decide from the first readable rows which columns of a table are the sides.

    ``first`` is the number of the first row that is not blank, readable or not: only that can be a
    header.
    """
    if table.keyed or table.names is not None:
        return _find_by_name(table, sample, selection)
    return _find_by_place(table, sample, first, selection, header)


def _find_by_place(table: Table, sample: Sample, first: int, selection: ColumnSelection, header: Header) -> TableLayout:
    """Find the layout of a table whose columns have no names, or names in a first row.

    The number of columns is the header's, or else that of most rows (of those with two or more).
    Every row must have it, even if only some columns are selected: in a row with an extra separator
    nobody can tell which cell moved.
    """
    cells_of_rows = [(number, list(record)) for number, record in sample]
    widths = Counter(len(cells) for _, cells in cells_of_rows)
    wants_source = selection.sources is None or bool(selection.sources)
    if wants_source and widths[1] * 2 > len(cells_of_rows):
        _refuse_one_column(table, cells_of_rows, widths[1])
    usual = max(widths, key=lambda width: (width > 1, widths[width]))
    number, cells = cells_of_rows[0]
    names = as_names(cells)
    where = table.place(number) if table.unit == "line" else table.label
    has_header = _decide_header(table, cells_of_rows, first, selection, header, usual)
    if selection.names() and not has_header:
        raise UserError(
            f"{where}: column {selection.names()[0]!r} is asked for by name, but there is no header; use its number"
        )
    width = len(cells) if has_header else usual
    rows = [row for _, row in cells_of_rows[has_header:] if len(row) == width]
    shown = tuple(names) if has_header or (table.may_have_header and look_like_names(cells, rows[1:])) else None
    candidates = Candidates(where, width, tuple(range(width)), shown, file_columns(rows, width), "columns")
    columns, sides = _choose(selection, candidates, tuple(names) if has_header else None)
    known = tuple(names) if has_header else None
    notes = [
        f"{table.description}, {width} column{'s' * (width != 1)}; {describe_columns(sides, columns, known)}",
        *_note_unused(candidates, columns, sides, selection, known),
    ]
    if has_header:
        notes.append(
            f"{table.unit} {number} is a header, not a row"
            + ("" if header == "yes" else "; if it is data: --set data.header=no")
        )
    elif header == "auto" and table.may_have_header:
        first_cells = ", ".join(name if len(name) <= 20 else f"{name[:19]}…" for name in names[:3])
        notes.append(f"{table.unit} {number} is a row ({first_cells}); if it names the columns: --set data.header=yes")
    if table.format == "tsv" and are_quoted(rows):
        notes.append(
            "every cell is in quotes, and in a TSV file quotes are data; if they only enclose the cells: "
            "--set data.format=csv"
        )
    return TableLayout(sides[:-1], columns, known, width, number if has_header else None, tuple(notes))


def _find_by_name(table: Table, sample: Sample, selection: ColumnSelection) -> TableLayout:
    """Find the layout of a table whose columns have names and types.

    What is not selected is inferred from the columns with text, and from those with usual names.
    """
    number = sample[0][0]
    where = table.place(number) if table.unit == "line" else table.label
    names = table.names if table.names is not None else _keys(sample)
    what = "key" if table.keyed else "column"
    for column in selection.columns():
        if table.keyed and not isinstance(column, str):
            raise UserError(f"{where}: column {column} is asked for, but each row has keys; name the key")
        if isinstance(column, str) and not column.isdecimal() and column not in names:
            raise UserError(f"{where}: no {what} is called {column!r}; {_nearest(column, names)}")
    cells_of_rows = [[row.get(name) for name in names] if isinstance(row, Mapping) else row for _, row in sample]
    texts = text_columns(cells_of_rows, names)
    files = file_columns(cells_of_rows, len(names))
    candidates = Candidates(where, len(names), tuple(texts), names, files, f"{what}s with text")
    columns, sides = _choose(selection, candidates, names)
    if table.keyed:
        chosen = ", ".join(f"{side} = {names[column]!r}" for side, column in zip(sides, columns, strict=True))
        note = f"{table.description}; {chosen}"
    else:
        note = (
            f"{table.description}, {len(names)} column{'s' * (len(names) != 1)}; "
            f"{describe_columns(sides, columns, names)}"
        )
    notes = (note, *_note_unused(candidates, columns, sides, selection, names))
    return TableLayout(sides[:-1], columns, names, len(names), None, notes)


def _keys(sample: Sample) -> tuple[str, ...]:
    """Return the keys of all rows, in the order in which they first occur."""
    return tuple(dict.fromkeys(key for _, row in sample if isinstance(row, Mapping) for key in row))


def text_columns(rows: Sequence[Sequence[object]], names: Sequence[str]) -> list[int]:
    """Return the columns that may be sides: those where most rows have text.

    If fewer than two have text, numbers and other values may be sides too.
    """

    def has(column: int, wanted: Callable[[object], bool]) -> bool:
        return sum(wanted(row[column]) for row in rows) * 2 >= sum(not is_missing(row[column]) for row in rows) > 0

    def can_be_text(value: object) -> bool:
        return isinstance(to_text(value, ""), str)

    texts = [column for column in range(len(names)) if has(column, is_text)]
    return texts if len(texts) > 1 else [column for column in range(len(names)) if has(column, can_be_text)]


def _decide_header(
    table: Table,
    rows: Sequence[tuple[int, list[Any]]],
    first: int,
    selection: ColumnSelection,
    header: Header,
    usual: int,
) -> bool:
    """Decide whether the first row is a header, and refuse what cannot be."""
    number, cells = rows[0]
    if header == "no" or (header == "auto" and (number != first or not table.may_have_header)):
        return False
    if header == "yes":
        if number != first:
            raise UserError(
                f"{table.place(first)}: the header cannot be read: not UTF-8; repair it or set data.header=no"
            )
        return True
    if selection.names():
        names = as_names(cells)
        for name in selection.names():
            if name not in names:
                raise UserError(f"{table.place(number)}: no column is called {name!r}; {_nearest(name, names)}")
        return True
    return len(cells) == usual and is_header([row for _, row in rows])


def _file_and_partner(names: Sequence[str], file: int) -> tuple[int | None, int | None]:
    """Return source and target of a table with one column of files; None where unclear."""
    target = usual_column(names, TARGET_NAMES)
    for name in FILE_TARGET_NAMES:
        target = usual_column(names, frozenset((name,))) if target is None else target
    texts = [column for column, name in enumerate(names) if name.strip().casefold() in SOURCE_NAMES]
    return (None if set(texts) - {file, target} else file), target


@dataclass(frozen=True, slots=True)
class Candidates:
    """The columns among which the sides are chosen, and what a message says of them."""

    where: str
    width: int  # of the table
    columns: tuple[int, ...]  # that may be sides
    shown: tuple[str, ...] | None  # names for messages, which may be no more than the cells of a first row
    files: Sequence[int]  # columns of paths
    what: str

    def describe(self) -> str:
        """Return how many there are, with their names."""
        # a row may have more cells than the row that the names are from
        shown = self.shown if self.shown is None or len(self.shown) > max(self.columns, default=0) else None
        names = "" if shown is None else f" ({', '.join(shown[column] for column in self.columns[:12])})"
        return f"{self.where}: {len(self.columns)} {self.what}{names}"

    def propose(self, usual_target: int | None) -> str:
        """Return options that select columns, as an example."""
        columns = list(self.columns) if len(self.columns) > 1 else list(range(self.width))
        target = usual_target if usual_target in columns else columns[-1]
        sources = [column for column in columns if column != target]
        return self.options(sources if len(columns) <= _PROPOSED else sources[:1], target)

    def options(self, sources: Sequence[int], target: int | None) -> str:
        """Return the options of the command line that select these columns."""
        words = [f"--source {self._name(column)}" for column in sources]
        return " ".join(words if target is None else [*words, f"--target {self._name(target)}"])

    def _name(self, column: int) -> str:
        if (
            self.shown is None
            or column >= len(self.shown)
            or self.shown.count(self.shown[column]) > 1
            or self.shown[column].isdecimal()
        ):
            return str(column + 1)
        return shlex.quote(self.shown[column])


def _choose(
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
                    f"{candidates.describe()}, and which are source and target is not clear; say which, for example: "
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
            example = candidates.options(free[:1], None)
        else:
            example = candidates.options([], usual_target if usual_target in free else free[-1] if free else given[-1])
        raise UserError(
            f"{candidates.describe()}, and which is the {side} is not clear; say which, for example: {example}"
        )
    return free[0]


def locate(column: ColumnName, names: Sequence[str] | None, width: int, where: str) -> int:
    """Return the place from 0 of a column that is selected by name or number."""
    if isinstance(column, str) and names and column in names:
        if names.count(column) > 1:
            raise UserError(f"{where}: {names.count(column)} columns are called {column!r}; use a number")
        return names.index(column)
    if isinstance(column, str) and not column.isdecimal():
        raise UserError(f"{where}: no column is called {column!r}; {_nearest(column, list(names or []))}")
    if not 1 <= int(column) <= width:
        raise UserError(f"{where}: column {column} is asked for, but there are {width}; count from 1")
    return int(column) - 1


def describe_columns(sides: Sequence[str], columns: Sequence[int], names: Sequence[str] | None) -> str:
    """Return which column is which side, in words."""
    return ", ".join(
        f"{side} = column {column + 1}" + (f" ({names[column]})" if names else "")
        for side, column in zip(sides, columns, strict=True)
    )


def _note_unused(
    candidates: Candidates,
    columns: Sequence[int],
    sides: Sequence[str],
    selection: ColumnSelection,
    names: Sequence[str] | None,
) -> list[str]:
    """Return a note that names the columns that are not used, and how to use those that could be sources."""
    unused = [column for column in range(candidates.width) if column not in columns]
    if not unused:
        return []
    listed = ", ".join(f"column {column + 1}" + (f" ({names[column]})" if names else "") for column in unused[:5])
    more = f" and {len(unused) - 5} more" if len(unused) > 5 else ""
    texts = [column for column in unused if column in candidates.columns]
    note = f"not used: {listed}{more}"
    is_inferred = selection.sources is None and len(sides) > 1
    if is_inferred and 0 < len(texts) < _PROPOSED:
        it = "it" if len(texts) == 1 else "them"
        note += f"; to read {it} too: {candidates.options(sorted([*texts, columns[0]]), columns[-1])}"
    return [note]


def _refuse_one_column(table: Table, rows: Sequence[tuple[int, list[Any]]], count: int) -> None:
    number, cells = next((number, cells) for number, cells in rows if len(cells) == 1)
    text = str(cells[0])
    total = f"{count:,} of the first {len(rows):,}"
    if table.format != "tsv":
        separator = " or separator" if table.format == "csv" else ""
        raise UserError(
            f"{table.place(number)}: no second column{separator}: {total} rows have one column only; a row needs a "
            "source and a target; for a language model of plain text: --preset lm-rnn"
        )
    if text.lstrip().startswith("{"):
        hint = "it looks like JSON lines: --set data.format=jsonl"
    elif "|||" in text:
        hint = "the sides seem to be parted by '|||'; put a tab there"
    elif "," in text or ";" in text:
        hint = "if it is CSV: --set data.format=csv"
    else:
        hint = "put a tab between source and target"
    raise UserError(
        f"{table.place(number)}: no tab: {total} lines have one column only; {hint}, "
        f"or give two parallel files; for a language model of plain text: --preset lm-rnn"
    )


def _nearest(name: str, names: Sequence[str]) -> str:
    """Return a hint for a misspelt name. Long names, which may be data, are shortened."""
    shortened = [other if len(other) <= LONGEST_NAME else other[: LONGEST_NAME - 1] + "…" for other in names[:20]]
    return nearest(name, shortened)
