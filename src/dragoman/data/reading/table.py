"""A table: rows of cells with their places, whatever it was read from.

Every format makes one of these, so that which column is which side is decided in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from dragoman.data.audit.audit import Refusal
from dragoman.data.examples import Unit, name_place

# The cells of a row in the order of the columns, or by the names of the columns.
Record: TypeAlias = "Sequence[object] | Mapping[str, object]"
Row: TypeAlias = "tuple[int, Record | Refusal]"  # its number from 1, and its cells
Lines: TypeAlias = "Callable[[], Iterator[str | Refusal]]"  # opens a text file


IN_MEMORY = "table"  # the format of tables that are no files


@dataclass(frozen=True, slots=True)
class Table:
    """A table whose columns are not chosen yet. Its rows can be read once."""

    label: str  # what messages call it
    format: str
    description: str  # of the format, in words
    rows: Iterator[Row]
    names: tuple[str, ...] | None = None  # of the columns, if the format has them; a first row may have them too
    keyed: bool = False  # each row names its own cells
    typed: bool = False  # cells may be other values than texts
    unit: Unit = "line"  # what the numbers of the rows count
    may_have_header: bool = True

    def place(self, number: int) -> str:
        """Return where a row is."""
        return name_place(self.label, number, self.unit)
