"""What the audit and errors say about the columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from dragoman.config import is_near
from dragoman.data.reading.choosing import PROPOSED, Candidates, nearest_name, shorten_names
from dragoman.data.reading.columns import ColumnSelection
from dragoman.data.reading.table import Table
from dragoman.errors import UserError


def describe_columns(sides: Sequence[str], columns: Sequence[int], names: Sequence[str] | None) -> str:
    """Return which column is which side, in words."""
    return ", ".join(
        f"{side} = column {column + 1}" + (f" ({names[column]})" if names else "")
        for side, column in zip(sides, columns, strict=True)
    )


def note_unused(
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
    if is_inferred and 0 < len(texts) < PROPOSED:
        it = "it" if len(texts) == 1 else "them"
        note += f"; to read {it} too: {candidates.options(sorted([*texts, columns[0]]), columns[-1])}"
    return [note]


def refuse_first_row(where: str, cells: Sequence[str], name: str, selection: ColumnSelection) -> NoReturn:
    """Refuse a table whose first row does not have a selected name.

    Without a similar name in it nobody can tell whether the row is a header or data, so its cells are not offered as
    names.
    """
    shown = shorten_names(cells)
    problem = f"{where}: no column is called {name!r}"
    if is_near(name, shown):
        raise UserError(f"{problem}; {nearest_name(name, cells)}")
    wanted = len(selection.columns())
    if len(cells) < wanted:
        names = ", ".join(str(column) for column in selection.columns())
        raise UserError(
            f"{problem}, and {wanted} columns are read ({names}), but the first row has {len(cells)}: "
            f"{' | '.join(shown)}; give another file"
        )
    sources = "".join(f"--source {number} " for number in range(1, 1 + len(selection.sources or {})))
    target = "" if selection.target is None else f"--target {wanted}"
    raise UserError(
        f"{problem}. The first row is: {' | '.join(shown)}. If it is a header, select columns by these names; if it is "
        f"data, by number, for example: {sources}{target}".rstrip()
    )


def refuse_one_column(table: Table, rows: Sequence[tuple[int, list[Any]]], count: int) -> NoReturn:
    """Refuse a table whose rows have one column only, with a hint at what it may be."""
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
