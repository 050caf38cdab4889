"""Results as tables: short lists, HTML for notebooks, and frames of pandas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Protocol, TypeVar

from dragoman.errors import MissingExtra

LISTED = 5  # items that the repr of a long list shows
SHOWN = 20  # rows that a notebook shows
LONGEST_CELL = 80  # characters of a text in a table of a notebook
LONGEST_TEXT = 40  # characters of a text in a repr


class HasRow(Protocol):
    """What can be a row of a table."""

    def to_row(self) -> Mapping[str, Any]:
        """Return the cells by the names of their columns."""
        ...


Item = TypeVar("Item", bound=HasRow)


class Rows(list[Item]):
    """A list of results that is short to look at, and that pandas can take over."""

    def __repr__(self) -> str:
        if len(self) <= LISTED:
            return super().__repr__()
        shown = ", ".join(map(repr, self[:LISTED]))
        return f"[{shown}, … and {len(self) - LISTED:,} more]"

    def _repr_html_(self) -> str:
        more = len(self) - SHOWN
        note = f"{more:,} more rows; to_pandas() has all of them" if more > 0 else ""
        return html_table([item.to_row() for item in self[:SHOWN]], note)

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with one row per result."""
        return make_frame(item.to_row() for item in self)


def make_frame(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Return rows as a pandas DataFrame, or say how to install pandas."""
    try:
        import pandas
    except ImportError:
        raise MissingExtra("pandas", "tables", "a DataFrame") from None
    return pandas.DataFrame(list(rows))


def html_table(rows: Sequence[Mapping[str, Any]], note: str = "") -> str:
    """Return rows with the same columns as an HTML table, with a note below it."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(_cell(row.get(name)) for name in columns) + "</tr>" for row in rows)
    below = f"<p><small>{escape(note)}</small></p>" if note else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"


def html_text(text: str) -> str:
    """Return a text for a terminal as HTML."""
    return f"<pre>{escape(text)}</pre>"


def shorten(text: str, most: int = LONGEST_TEXT) -> str:
    """Return the text, cut with an ellipsis if it is long."""
    return text if len(text) <= most else text[: most - 1] + "…"


def _cell(value: Any) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, float):
        return f'<td style="text-align: right">{value:.4g}</td>'
    if isinstance(value, int):
        return f'<td style="text-align: right">{value:,}</td>'
    return f'<td style="text-align: left" dir="auto">{escape(shorten(str(value), LONGEST_CELL))}</td>'
