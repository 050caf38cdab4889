"""A tokeniser as one flat table of bytes, which the native library reads: native/tokenizer.h has its layout."""

from __future__ import annotations

import re
import struct
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import accumulate, chain

import numpy as np

from dragoman.data.tokenizers import Tokenizer
from dragoman.errors import UserError

MAGIC, VERSION = b"DTOK", 1
METHODS = ("bytes", "characters", "symbols", "words", "bpe", "unigram")
_LAST = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
_HANGUL = range(0xAC00, 0xD7A4)  # syllables, which are composed by arithmetic
_HANGUL_PARTS = (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))  # those that join what is before them


def tokenizer_table(tokenizer: Tokenizer) -> bytes:
    """Return the table of a tokeniser; the same tokeniser gives the same bytes.

    Raises UserError for a tokeniser that cannot be written as plain data.
    """
    lowered = tokenizer.lower()
    try:
        strings = [string.encode("utf-8") for string in lowered.strings]
    except UnicodeEncodeError:
        raise UserError(f"the vocabulary of the {tokenizer.kind} has a lone surrogate; train again") from None
    prefixes = {string[:end] for string in strings for end in range(1, len(string) + 1)}
    is_normalized = tokenizer.normalize == "nfc"
    shown = _shown(tokenizer, lowered.strings)
    sections = [
        _numbers(accumulate(map(len, strings))),
        b"".join(strings),
        np.array(lowered.scores, "<f4").tobytes(),
        _numbers(chain.from_iterable(_word_ranges(lowered.word_characters) if lowered.word_characters else ())),
        *(_normalization() if is_normalized else (b"",) * 5),
        _ends(shown),
        b"".join(shown.values()),
    ]
    offset = 4 * (8 + 2 * len(sections))
    places, contents = [], []
    for section in sections:
        places += [offset, len(section)]
        contents.append(section + bytes(-len(section) % 4))
        offset += len(contents[-1])
    method = METHODS.index(lowered.method)
    header = [VERSION, offset, method, int(is_normalized), tokenizer.size, len(prefixes), 0, *places]
    return MAGIC + _numbers(header) + b"".join(contents)


def _numbers(values: Iterable[int]) -> bytes:
    values = list(values)
    return struct.pack(f"<{len(values)}I", *values)


def _ends(parts: dict[int, bytes], unit: int = 1) -> bytes:
    """Return rows of a key and of where its part ends among all parts, in units of so many bytes."""
    ends = accumulate(len(part) // unit for part in parts.values())
    return _numbers(chain.from_iterable(zip(parts, ends, strict=True)))


def _shown(tokenizer: Tokenizer, strings: Sequence[str]) -> dict[int, bytes]:
    """Return the printable strings that the rule of the library does not make."""
    first = tokenizer.size - len(strings)
    prefix = " " if tokenizer.kind == "words" else ""
    shown = {}
    for index, piece in enumerate(tokenizer.pieces(range(first, tokenizer.size)), first):
        string = strings[index - first]
        rule = (string.removeprefix(prefix) or string).replace(" ", "▁") if string else "￭"
        if piece != rule:
            shown[index] = piece.encode("utf-8")
    return shown


def _ranges(codes: Iterable[int]) -> list[tuple[int, int]]:
    """Return the ranges (first, last) of some characters."""
    ranges: list[tuple[int, int]] = []
    for code in sorted(codes):
        if ranges and ranges[-1][1] == code - 1:
            ranges[-1] = (ranges[-1][0], code)
        else:
            ranges.append((code, code))
    return ranges


@cache
def _word_ranges(characters: str) -> list[tuple[int, int]]:
    every = "".join(" " if code in _SURROGATES else chr(code) for code in range(_LAST + 1))
    return [(match.start(), match.end() - 1) for match in re.finditer(f"{characters}+", every)]


@cache
def _normalization() -> tuple[bytes, ...]:
    """Return the five sections of normalisation form C, from this Python's version of Unicode."""
    decomposed, compositions, classes = {}, [], []
    unstable = set(_HANGUL_PARTS)
    for code in range(_LAST + 1):
        if code in _SURROGATES or code in _HANGUL:
            continue
        character = chr(code)
        if unicodedata.combining(character):
            classes.append((code, unicodedata.combining(character)))
            unstable.add(code)
        mapping = unicodedata.decomposition(character)
        if not mapping or mapping.startswith("<"):
            continue
        full = unicodedata.normalize("NFD", character)
        decomposed[code] = _numbers(map(ord, full))
        parts = [int(part, 16) for part in mapping.split()]
        if unicodedata.normalize("NFC", character) != character:
            unstable.add(code)
        elif len(parts) == 2:
            compositions.append((*parts, code))
            unstable.add(parts[1])
    return (
        _numbers(chain.from_iterable(_ranges(unstable))),
        _numbers(chain.from_iterable((code, code, number) for code, number in classes)),
        _ends(decomposed, 4),
        b"".join(decomposed.values()),
        _numbers(chain.from_iterable(sorted(compositions))),
    )
