"""Which column, or key, of a table is which side, and whether its first row is a header.

Inference is conservative. A first line is taken for a header only if the columns were selected by
names that are in it, or if exactly one of its cells is a usual name for a source and exactly one a
usual name for a target and neither cell occurs in that column again, or if it has no path where the
lines below have paths of files. A single column of paths is the source. Where the columns have
names and types of their own, those with text are the candidates. The audit notes whatever is
decided, and names the columns that are not used.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from dragoman.data.reading.choosing import Candidates, choose, nearest_name
from dragoman.data.reading.column_notes import describe_columns, note_unused, refuse_first_row, refuse_one_column
from dragoman.data.reading.columns import ColumnSelection, Header
from dragoman.data.reading.headers import as_names, file_columns, is_header, look_like_names
from dragoman.data.reading.table import IN_MEMORY, Record, Table
from dragoman.data.reading.text_files import are_quoted
from dragoman.data.reading.values import is_missing, is_text, to_text
from dragoman.errors import UserError

Sample: TypeAlias = "Sequence[tuple[int, Record]]"  # the first readable rows of a table, with their numbers


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
        refuse_one_column(table, cells_of_rows, widths[1])
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
    candidates = Candidates(
        where,
        width,
        tuple(range(width)),
        shown,
        file_columns(rows, width),
        "columns",
        table.format == IN_MEMORY,
        None if has_header or not table.may_have_header else tuple(names),
    )
    columns, sides = choose(selection, candidates, tuple(names) if has_header else None)
    known = tuple(names) if has_header else None
    notes = [
        f"{table.description}, {width} column{'s' * (width != 1)}; {describe_columns(sides, columns, known)}",
        *note_unused(candidates, columns, sides, selection, known),
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
            raise UserError(f"{where}: no {what} is called {column!r}; {nearest_name(column, names)}")
    cells_of_rows = [[row.get(name) for name in names] if isinstance(row, Mapping) else row for _, row in sample]
    texts = text_columns(cells_of_rows, names)
    files = file_columns(cells_of_rows, len(names))
    candidates = Candidates(
        where, len(names), tuple(texts), names, files, f"{what}s with text", table.format == IN_MEMORY
    )
    columns, sides = choose(selection, candidates, names)
    if table.keyed:
        chosen = ", ".join(f"{side} = {names[column]!r}" for side, column in zip(sides, columns, strict=True))
        note = f"{table.description}; {chosen}"
    else:
        note = (
            f"{table.description}, {len(names)} column{'s' * (len(names) != 1)}; "
            f"{describe_columns(sides, columns, names)}"
        )
    notes = (note, *note_unused(candidates, columns, sides, selection, names))
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
                refuse_first_row(table.place(number), names, name, selection)
        return True
    return len(cells) == usual and is_header([row for _, row in rows])
