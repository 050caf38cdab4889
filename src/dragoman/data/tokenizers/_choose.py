"""The rule behind "auto": which kind of tokeniser suits some texts, and why, in a sentence."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dragoman.data.tokenizers.symbols import LONGEST_SYMBOL, split
from dragoman.data.tokenizers.words import units

_SAMPLE = 10_000  # rows examined, evenly spread
_NUMBER = re.compile(r"\d\d")
_CLOSED_MOST = 1_000  # most members of a closed set
_CLOSED_UNSEEN = 0.002  # largest share of the tokens in one half of the rows that the other half does not have
_CLOSED_REPEATS = 10  # how often a member of a closed set occurs on average, at least


@dataclass(frozen=True)
class _Set:
    """The tokens that one way of splitting gives, to tell whether they are a closed set."""

    distinct: int
    total: int
    unseen: float  # share of the tokens in odd rows that no even row has

    @classmethod
    def of(cls, rows: Sequence[Sequence[str]]) -> _Set:
        even = {token for row in rows[::2] for token in row}
        odd = Counter(token for row in rows[1::2] for token in row)
        total, new = sum(odd.values()), sum(count for token, count in odd.items() if token not in even)
        return cls(len(even | odd.keys()), sum(map(len, rows)), new / total if total else 0.0)

    def closed(self, unseen: float = _CLOSED_UNSEEN, repeats: int = _CLOSED_REPEATS) -> bool:
        return self.unseen <= unseen and self.distinct <= min(_CLOSED_MOST, self.total / repeats)


def choose(texts: Sequence[str], side: str) -> tuple[str, str]:
    """Return the kind of tokeniser for ``texts``, and the reason in a sentence about ``side``."""
    kind, reason, _ = _choose(texts, side)
    return kind, reason


def choose_together(columns: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, str]]:
    """Return a kind of tokeniser and the reason for each of several columns of one table.

    Columns whose rows are made of words have the same kind, chosen for all their texts at once: a
    word that is in two of them is then read in the same way. A column of another kind of text
    (phones, labels, numbers, text without spaces) has its own.
    """
    chosen = {name: _choose(texts, name) for name, texts in columns.items()}
    alike = [name for name, (_, _, are_words) in chosen.items() if are_words]
    result = {name: (kind, reason) for name, (kind, reason, _) in chosen.items()}
    if len({result[name][0] for name in alike}) > 1:
        kind, reason = choose([text for name in alike for text in columns[name]], " and ".join(alike))
        reason += " They are rows of words of one table, so one kind was chosen for all their texts."
        result |= dict.fromkeys(alike, (kind, reason))
    return result


def _choose(texts: Sequence[str], side: str) -> tuple[str, str, bool]:
    """Return the kind, the reason, and whether rows are made of words, however many and how often."""
    sample = [text for text in texts[:: max(1, -(-len(texts) // _SAMPLE))] if text]
    rows = [row for row in map(split, sample) if row]
    if not rows:
        return "characters", f"{side}: characters, because there is no text to judge by.", False

    symbols = _Set.of(rows)
    looked = f", in the {len(rows)} rows looked at" if len(rows) < sum(map(bool, texts)) else ""
    per_row = statistics.median(map(len, rows))
    lengths = sorted(map(len, sample))
    long_row = lengths[int(0.95 * (len(lengths) - 1))]
    one_word = sum(len(row) == 1 for row in rows) / len(rows)
    symbol_length = sum(len(symbol) for row in rows for symbol in row) / symbols.total
    numbers = [symbol for row in rows for symbol in row if _NUMBER.search(symbol)]

    # Dates, prices, times: numbers are spelled digit by digit, not learnt one by one.
    if len(numbers) >= 0.15 * symbols.total and len(set(numbers)) >= 0.02 * len(numbers) + 20 and long_row <= 100:
        return (
            "characters",
            f"{side}: characters, because {len(numbers) / symbols.total:.0%} of the words are numbers, "
            "best read digit by digit.",
            False,
        )
    # Phones and the like: short, several in a row. With few rows, one half may lack some of the other half's phones.
    if per_row >= 3 and symbol_length <= LONGEST_SYMBOL and one_word < 0.5 and _phones(symbols, symbol_length):
        return (
            "symbols",
            f"{side}: symbols, because rows are made of {symbols.distinct} short symbols between spaces "
            f"({symbol_length:.1f} characters each){looked}.",
            False,
        )
    if one_word >= 0.9 and symbols.distinct <= 100 and symbols.closed(repeats=20):
        return (
            "symbols",
            f"{side}: a token for each label (symbols), because every row is one of {symbols.distinct} labels{looked}.",
            False,
        )
    if one_word >= 0.5 or symbol_length > 15:
        return (
            "characters",
            f"{side}: characters, because {one_word:.0%} of the rows have no space inside them."
            if one_word >= 0.5
            else f"{side}: characters, because spaces are rare (every {symbol_length:.0f} characters).",
            False,
        )
    if symbols.closed() and not _punctuated(rows):
        return (
            "symbols",
            f"{side}: a token for each word (symbols), because rows are made of a closed set of {symbols.distinct} "
            f"words{looked}.",
            True,
        )
    if per_row <= 3 and long_row <= 40:
        return (
            "characters",
            f"{side}: characters, because rows are short: {per_row:.0f} words, {long_row} characters at most "
            "in 95% of them.",
            True,
        )
    words = _Set.of([units(text) for text in sample])
    if words.closed():
        return (
            "words",
            f"{side}: words, because rows are made of a closed set of {words.distinct} words and marks{looked}.",
            True,
        )
    return (
        "subwords",
        f"{side}: subwords, because rows are sentences ({per_row:.0f} words) of an open vocabulary "
        f"({symbols.distinct} distinct words{looked}).",
        True,
    )


def _phones(symbols: _Set, symbol_length: float) -> bool:
    """Tell whether symbols are phones or the like.

    Single characters may be many (Chinese); others are a closed set.
    """
    return symbols.unseen <= 0.05 and (symbol_length <= 1.2 or symbols.distinct <= min(_CLOSED_MOST, symbols.total / 4))


def _punctuated(rows: Sequence[Sequence[str]]) -> bool:
    """Tell whether punctuation is attached to words, as in ordinary writing."""
    hanging = sum(len(symbol) > 1 and symbol[-1] in ".,;:!?)]\"'" for row in rows for symbol in row)
    return hanging > 0.01 * sum(map(len, rows))
