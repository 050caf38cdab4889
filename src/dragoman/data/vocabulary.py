"""Strings to ids and back, with how often each was seen in training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dragoman.errors import UserError
from dragoman.files import write_json

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")


class Vocabulary:
    """The four specials, then a frozen list of distinct strings.

    The specials are ids, not strings: text that happens to read ``</s>`` is an ordinary symbol with an id of its own.
    """

    def __init__(self, symbols: Sequence[str], counts: Sequence[int] | None = None) -> None:
        """``counts`` is per id, the specials included; all 0 when not given."""
        self.symbols = tuple(symbols)
        self.counts = tuple(counts) if counts is not None else (0,) * len(self)
        self._ids = {symbol: position for position, symbol in enumerate(self.symbols, start=len(SPECIALS))}
        if len(self._ids) != len(self.symbols):
            raise ValueError("a vocabulary holds each symbol once")
        if len(self.counts) != len(self):
            raise ValueError(f"{len(self.counts)} counts for {len(self)} ids")

    @classmethod
    def build(
        cls, seen: Mapping[str, int], *, min_count: int = 1, size: int | None = None, always: Sequence[str] = ()
    ) -> Vocabulary:
        """The most frequent first (ties in code point order); what is left out is counted under UNK.

        ``size`` caps the number of ids, specials included; ``always`` comes first, whatever its count.
        """
        ranked = sorted(
            (symbol for symbol, count in seen.items() if count >= min_count and symbol not in always),
            key=lambda symbol: (-seen[symbol], symbol),
        )
        room = None if size is None else max(0, size - len(SPECIALS) - len(always))
        symbols = (*always, *ranked[:room])
        kept = [seen.get(symbol, 0) for symbol in symbols]
        return cls(symbols, [0, sum(seen.values()) - sum(kept), 0, 0, *kept])

    def __len__(self) -> int:
        return len(SPECIALS) + len(self.symbols)

    def __contains__(self, symbol: object) -> bool:
        return symbol in self._ids

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Vocabulary):
            return NotImplemented
        return self.symbols == other.symbols and self.counts == other.counts

    def __hash__(self) -> int:
        return hash((self.symbols, self.counts))

    def id(self, symbol: str) -> int:
        """The id of ``symbol``, UNK when there is none."""
        return self._ids.get(symbol, UNK)

    def symbol(self, index: int) -> str:
        """The string behind an id; a special's name in angle brackets."""
        return SPECIALS[index] if index < len(SPECIALS) else self.symbols[index - len(SPECIALS)]

    def to_record(self) -> dict[str, Any]:
        return {"symbols": list(self.symbols), "counts": list(self.counts)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Vocabulary:
        """The inverse of ``to_record``; ValueError when the record is not one."""
        symbols, counts = record.get("symbols"), record.get("counts")
        if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
            raise ValueError("'symbols' is not a list of strings")
        if not isinstance(counts, list) or not all(type(count) is int and count >= 0 for count in counts):
            raise ValueError("'counts' is not a list of whole numbers")
        return cls(symbols, counts)

    def save(self, path: Path) -> None:
        write_json(path, self.to_record())

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        record = read_json(path)
        try:
            return cls.from_record(record)
        except ValueError as error:
            raise damaged(path, str(error)) from None


def damaged(path: Path, reason: str) -> UserError:
    return UserError(f"{path}: damaged: {reason}; restore the file from a copy of its folder, or train again")


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror or str(error)
        raise UserError(f"{path}: {reason}; a folder with a saved model has this file") from None


def read_json(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(read_bytes(path).decode("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise damaged(path, f"not valid JSON ({error})") from None
    if not isinstance(record, dict):
        raise damaged(path, "not a JSON object")
    return record
