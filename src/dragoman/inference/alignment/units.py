"""The units that are aligned: words, characters or symbols, and which token positions they consist of.

An alignment is between parts of a text that its reader can count: words between white space, code points, or symbols
between spaces. Which of them is decided by the tokenisers of a run (``choose_units``).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from dragoman.data.tokenizers import Tokenizer
from dragoman.errors import UserError

UnitKind: TypeAlias = Literal["word", "character", "symbol"]
Span: TypeAlias = tuple[int, int]  # of characters: the first, and the one after the last

ALIGN_UNITS = ("auto", "words", "tokens")
_PATTERNS = {"word": r"\S+", "symbol": r"[^ ]+", "character": r"(?s:.)"}


@dataclass(frozen=True, slots=True)
class Units:
    """The units of one text, and how much of each position belongs to each of them."""

    kind: UnitKind
    texts: tuple[str, ...]
    shares: np.ndarray  # (positions, units); the row of a position sums to 1, or to 0 if it has no character in any


def check_unit(asked: str) -> None:
    """Refuse a unit that there is none of."""
    if asked not in ALIGN_UNITS:
        raise UserError(f"align_unit = {asked!r}: there is no such unit; choose from: {', '.join(ALIGN_UNITS)}")


def choose_units(sources: Sequence[Tokenizer], target: Tokenizer, asked: str = "auto") -> tuple[UnitKind, UnitKind]:
    """Return the units of the source and of the target.

    ``words``: words on both sides. ``tokens``: what the tokenisers know single: characters or symbols, otherwise words.
    ``auto``: as ``tokens`` if the target's tokeniser knows characters or symbols, which is how letters become phones
    or other letters; otherwise words.
    """
    own = token_unit(target)
    if asked == "words" or (asked == "auto" and own == "word"):
        return "word", "word"
    kinds = {token_unit(tokenizer) for tokenizer in sources}
    return (kinds.pop() if len(kinds) == 1 else "word"), own


def choose_target_unit(target: Tokenizer, asked: str = "auto") -> UnitKind:
    """Return the units that have times in a recording or boxes in a picture.

    These are words. A tokeniser of characters that has never seen a space writes no words, so then they are
    characters, as with ``tokens``.
    """
    own = choose_units([], target, asked)[1]
    if asked == "auto" and own == "character" and _writes_spaces(target):
        return "word"
    return own


def token_unit(tokenizer: Tokenizer) -> UnitKind:
    """Return what a tokeniser knows single. A byte is not, but a character is."""
    kinds: dict[str, UnitKind] = {"characters": "character", "bytes": "character", "symbols": "symbol"}
    return kinds.get(tokenizer.kind, "word")


def split_units(text: str, kind: UnitKind) -> list[Span]:
    """Return where the units of a text are."""
    return [match.span() for match in re.finditer(_PATTERNS[kind], text)]


def find_units(text: str, spans: Sequence[Span], kind: UnitKind, written: str = "") -> Units:
    """Return the units of a text whose positions have these spans.

    ``written``: the text as it was given, in which nothing is unknown. Its units are named if there are as many of
    them.
    """
    text = written if len(written) == len(text) else text
    units = split_units(text, kind)
    given = split_units(written, kind)
    texts = [written[begin:end] for begin, end in given] if len(given) == len(units) else []
    begins, ends = (np.array([span[side] for span in spans], np.int64)[:, None] for side in (0, 1))
    firsts, lasts = (np.array([unit[side] for unit in units], np.int64)[None, :] for side in (0, 1))
    shares = np.clip(np.minimum(ends, lasts) - np.maximum(begins, firsts), 0, None).astype(np.float64)  # (P, U)
    total = shares.sum(1, keepdims=True)
    shares = np.divide(shares, total, out=np.zeros_like(shares), where=total > 0)
    return Units(kind, tuple(texts or (text[begin:end] for begin, end in units)), shares)


def _writes_spaces(target: Tokenizer) -> bool:
    counts = target.counts
    return any(counts[index] for index in target.encode(" "))
