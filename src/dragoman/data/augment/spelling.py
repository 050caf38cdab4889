"""How the two sides of a row are written: in letters, or in symbols between spaces, with tags among them.

Rows are made of units: the symbols between spaces where a side has such (`<V> <PST> g e h e n`), else
single characters. A tag, which is written in angle brackets, is always one unit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from dragoman.data.tokenizers import choose

SPACE = "␣"  # stands for a space among symbols
TAG = re.compile(r"<[^<>\s]+>")
_UNITS = re.compile(r"<[^<>\s]+>|.", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Spelling:
    """How the texts of one side are divided into units."""

    spaced: bool  # units are symbols between spaces

    def units(self, text: str) -> list[str]:
        """Return the units of a text; a space among letters is written as ``SPACE``."""
        if self.spaced:
            return text.split()
        return [SPACE if unit == " " else unit for unit in _UNITS.findall(text)]

    def join(self, units: Sequence[str]) -> str:
        """Return the text of units: what ``units`` divided."""
        if self.spaced:
            return " ".join(units)
        return "".join(" " if unit == SPACE else unit for unit in units)


def spelling_of(texts: Sequence[str], side: str) -> Spelling:
    """Return how the texts of a side are written."""
    return Spelling(choose(texts, side)[0] == "symbols")


def is_tag(unit: str) -> bool:
    """Return whether a unit is a tag: something in angle brackets."""
    return TAG.fullmatch(unit) is not None
