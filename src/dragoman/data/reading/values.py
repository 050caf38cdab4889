"""The cells of a table as texts.

A text file shows its numbers, and they are read as they are written: ``1.50`` stays ``1.50``.
Tables with types (frames, Parquet, Excel, JSON) hold values, and each becomes a text by itself,
whatever else is in its column, so that a row reads the same in training and alone:

- missing (None, NaN, NaT, NA): an empty text, which the audit counts as an empty side;
- a whole number: its digits, without a decimal point even where the column is of floats, as pandas
  makes it for integers with a gap;
- any other number: the shortest digits that give the same number; a number in JSON: as written;
- true and false: ``true`` and ``false``, as JSON writes them;
- a date: ``2024-05-03``; a date with a time: ``2024-05-03 17:30:00``, with its time zone if it has
  one. A time of midnight without a time zone is left out, because many libraries have no dates
  without a time.

Anything else (lists, objects, bytes, pictures, durations) is no text, and the row is refused.
"""

from __future__ import annotations

import datetime
from decimal import Decimal

from dragoman.data.audit.audit import Refusal

_WHOLE = 1e15  # floats below this hold every whole number exactly
_NOUNS = {"list": "a list", "dict": "an object", "tuple": "a list", "bytes": "bytes", "timedelta": "a duration"}


class JsonNumber(str):
    """A number as it is written in JSON."""

    __slots__ = ()


def is_text(value: object) -> bool:
    """Tell whether a cell holds a text, not a number or another value that can become one."""
    return isinstance(value, str) and not isinstance(value, JsonNumber)


def is_missing(value: object) -> bool:
    """Tell whether a cell is empty, in the way of whatever library it comes from."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(value, (float, Decimal)) and value != value


def to_text(value: object, column: str) -> str | Refusal:
    """Return a cell as a text, or why it is none. ``column`` is what a message calls its column."""
    if isinstance(value, str):
        return str(value)
    if is_missing(value):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, Decimal)):
        return str(value)
    if isinstance(value, float):
        return _format_float(value, repr(float(value)))
    if isinstance(value, datetime.datetime):
        at_midnight = value.time() == datetime.time() and value.tzinfo is None
        return value.date().isoformat() if at_midnight else value.isoformat(" ")
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if type(value).__module__ == "numpy" and hasattr(value, "item"):
        return _numpy_text(value, column)
    kind = type(value).__name__
    return Refusal("missing_key", f"{column} is {_NOUNS.get(kind, f'of type {kind}')}, not text")


def _format_float(value: float, digits: str) -> str:
    return str(int(value)) if value.is_integer() and abs(value) < _WHOLE else digits


def _numpy_text(value: object, column: str) -> str | Refusal:
    """Return the text of a numpy scalar. Those of few bits have their own shortest digits."""
    import numpy as np

    if isinstance(value, np.floating):
        return "" if np.isnan(value) else _format_float(float(value), str(value))
    if isinstance(value, np.datetime64):
        return to_text(value.astype("datetime64[us]").item(), column)
    if isinstance(value, (np.integer, np.bool_)):
        return to_text(value.item(), column)
    return Refusal("missing_key", f"{column} is of type {type(value).__name__}, not text")
