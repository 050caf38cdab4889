"""The texts of one row: tidied or refused, with oddities recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias
from unicodedata import is_normalized

from dragoman.data.audit.audit import Audit, Refusal
from dragoman.data.examples import LINE_BREAK, TARGET, tidy

Cells: TypeAlias = "tuple[str, ...]"  # the sources in order, then the target

ONE_LINE = ("tsv", "parallel", "text")  # formats whose cells cannot have line breaks

_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\ud800-\udfff]")  # a tab is data where it separates no columns
_INVISIBLE = re.compile("[\u00ad\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
_HOLLOW = re.compile(r"[\s\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]*")


def check_cells(cells: Cells, names: tuple[str, ...], line: int, limit: int, audit: Audit) -> Cells | Refusal:
    """Return the tidied cells, or why the row cannot be used.

    Oddities are recorded, each once per row, if the row is used.
    """
    odd: dict[str, tuple[str, str | None]] = {}  # category → reason, file
    tidied: list[str] = []
    for index, cell in enumerate(cells):
        # Nearly all cells pass this quick test: printable, no white space around, ASCII or NFC.
        if (
            cell.isprintable()
            and cell
            and not cell[0].isspace()
            and not cell[-1].isspace()
            and len(cell) <= limit
            and (cell.isascii() or ("\ufffd" not in cell and is_normalized("NFC", cell)))
        ):
            tidied.append(cell)
            continue
        side = names[index] if index < len(names) else TARGET if names else "line"
        file = audit.files[index] if len(audit.files) > 1 else None
        text = _check_cell(cell, side, limit, audit.format not in ONE_LINE, file, odd)
        if isinstance(text, Refusal):
            return text
        tidied.append(text)
    if tidied[-1] in tidied[:-1]:
        odd["copy"] = "the target is the source", None
    for category, (reason, file) in odd.items():
        audit.record(category, line, reason, file)
    return tuple(tidied)


def _check_cell(
    cell: str, side: str, limit: int, breaks: bool, file: str | None, odd: dict[str, tuple[str, str | None]]
) -> str | Refusal:
    """Check one cell in full. ``breaks``: line breaks may be repaired."""
    if breaks and LINE_BREAK.search(cell):
        cell = LINE_BREAK.sub(" ", cell)
        odd.setdefault("line_break", (f"in the {side}", file))
    if match := _CONTROL.search(cell):
        code = ord(match[0])
        if code >= 0xD800:
            return Refusal("invalid_utf8", f"lone surrogate \\u{code:04x} in the {side}: not a character", file)
        return Refusal("control_character", f"U+{code:04X} at character {match.start() + 1} of the {side}", file)
    text = tidy(cell)
    if not text:
        return Refusal("empty_side", f"the {side} is empty", file)
    if _HOLLOW.fullmatch(text):
        return Refusal("empty_side", f"the {side} has only invisible characters", file)
    if len(text) > limit:
        return Refusal("too_long", f"{len(text):,} characters in the {side}, over max_characters={limit:,}", file)
    if text != cell.strip():
        odd.setdefault("byte_order_mark", (f"byte order mark around the {side}", file))
    elif text != cell:
        odd.setdefault("white_space", (f"around the {side}", file))
    for category, reason in _oddities(text, side):
        odd.setdefault(category, (reason, file))
    return text


def _oddities(text: str, side: str) -> Iterator[tuple[str, str]]:
    """Yield the category and the reason of each oddity."""
    if not is_normalized("NFC", text):
        yield "not_nfc", f"in the {side}"
    if match := _INVISIBLE.search(text):
        yield "invisible", f"U+{ord(match[0]):04X} in the {side}"
    if "\ufffd" in text:
        yield "replacement_character", f"in the {side}; it was broken before it came here"
