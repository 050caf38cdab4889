"""The columns that the config selects as sides of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

ColumnName: TypeAlias = "int | str"
Header = Literal["auto", "yes", "no"]


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
