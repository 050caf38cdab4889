"""Which training rows are too long: the limit ``max_tokens``, fitted to the data and to the memory.

Nothing here needs torch, so that ``check`` says what ``train`` will do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from dragoman.data import tokenizers
from dragoman.data.examples import TARGET, Example
from dragoman.data.tokenizers import Tokenizer, TokenizerConfig
from dragoman.process.memory import total_memory
from dragoman.recipe import auto
from dragoman.recipe.memory import Sizes, estimate_memory

USUAL_LIMIT = 400  # tokens; the limit where no row has more
MOST_LOST = 0.05  # largest share of the rows that may be left out without being asked for
SAMPLE = 20_000  # texts that are tokenised to foresee what training does; all of fewer
MOST_MEMORY = 0.6  # largest share of the machine's memory that training is planned to need

# tokens of each row, by the name of the text; no end symbols
Lengths: TypeAlias = "Mapping[str, Sequence[int]] | Mapping[str, np.ndarray]"


@dataclass(frozen=True, slots=True)
class Loss:
    """The rows that a limit would lose although nobody asked for that."""

    lost: int
    rows: int
    limit: int  # tokens, the most that memory has room for
    longest: int  # tokens of the longest row
    needed: int  # bytes that training on all rows would need
    total: int  # bytes of memory

    @property
    def is_too_much(self) -> bool:
        return self.lost > MOST_LOST * self.rows

    def __str__(self) -> str:
        return (
            f"{self.lost:,} of {self.rows:,} training rows ({self.lost / self.rows:.0%}) have more than {self.limit:,} "
            f"tokens, for which the memory is too small ({format_bytes(self.total)}); --set max_tokens={self.longest} "
            f"trains on all rows all the same (about {format_bytes(self.needed)}), --set max_tokens={self.limit} "
            "leaves the long ones out"
        )


def find_too_long(lengths: Lengths, most: int) -> dict[int, str]:
    """Return the rows with more than ``most`` tokens on a side, each with the reason in words."""
    reasons: dict[int, str] = {}
    for name, column in lengths.items():
        for row in np.flatnonzero(np.asarray(column) > most).tolist():
            before = f"{reasons[row]} and " if row in reasons else ""
            reasons[row] = f"{before}{name} has {column[row]} tokens"
    return {row: f"{reason}; max_tokens = {most}" for row, reason in sorted(reasons.items())}


def longest_row(lengths: Lengths) -> int:
    """Return the tokens of the longest side of all rows."""
    return max((int(np.max(column)) for column in lengths.values() if len(column)), default=0)


def fit_limit(lengths: Lengths, memory: Callable[[int], int], budget: float | None) -> int:
    """Return the limit that keeps every row or, if memory is short, as many as it has room for.

    ``memory`` estimates the bytes that training needs with a limit. None as ``budget``: any amount.
    """
    low, high = USUAL_LIMIT, longest_row(lengths)
    if high <= low:
        return low
    if budget is None or memory(high) <= budget:
        return high
    while low < high - 1:  # the limit ``low`` is taken as it is, ``high`` needs too much
        middle = (low + high) // 2
        low, high = (middle, high) if memory(middle) <= budget else (low, middle)
    return low


def memory_budget() -> float | None:
    """Return the bytes that training may be planned to need; None where the memory is unknown."""
    total = total_memory()
    return None if total is None else MOST_MEMORY * total


def format_bytes(count: float) -> str:
    """Return a number of bytes for people."""
    return f"{count / 1e9:.1f} GB" if count >= 0.95e9 else f"{count / 1e6:.0f} MB"


# ---- what can be foreseen without torch


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What training will do with long rows."""

    kinds: Mapping[str, str]  # of tokeniser, by the name of the text
    longest: Mapping[str, int]  # tokens, likewise
    limit: int
    too_long: Mapping[int, str]  # rows that are left out, with the reason
    memory: int | None  # bytes that training needs; None: unknown
    loss: Loss | None = None  # if training would refuse to lose so many rows

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as plain values."""
        return {
            "tokenizers": dict(self.kinds), "longest": dict(self.longest), "limit": self.limit,
            "too_long": len(self.too_long), "memory": self.memory, "refused": self.is_refused,
        }  # fmt: skip

    @property
    def is_refused(self) -> bool:
        """Return whether training would stop, because too many rows would be lost."""
        return self.loss is not None and self.loss.is_too_much

    def lines(self) -> list[str]:
        """Return sentences for people."""
        texts = ", ".join(f"{name} up to {self.longest[name]:,} ({self.kinds[name]})" for name in self.longest)
        lines = [f"Tokens: {texts}"]
        if self.is_refused:
            lines.append(f"  train would stop: {self.loss}")
        elif self.too_long:
            lines.append(f"  {len(self.too_long):,} training rows have more than max_tokens = {self.limit:,}")
        else:
            lines.append("  no row is too long for training (max_tokens)")
        if self.memory is not None:
            lines.append(f"  training on the longest row needs about {format_bytes(self.memory)} of memory")
        return lines


def foresee(
    examples: Sequence[Example],
    kinds: Mapping[str, str],
    configs: Mapping[str, TokenizerConfig],
    asked: int | None = None,
    *,
    is_auto: bool = True,
) -> Foreseen | None:
    """Foresee what training does with long rows; None where every row is short, whatever the tokens.

    ``kinds`` are the modalities of the sources, ``configs`` the settings of their tokenisers and
    the target's, ``asked`` is ``max_tokens`` if somebody set it. Where ``auto`` chooses the model,
    the memory is estimated too.
    """
    texts = {name: [example.sources[name] for example in examples] for name, kind in kinds.items() if kind == "text"}
    texts[TARGET] = [example.target for example in examples]
    most = asked or USUAL_LIMIT
    if not any(len(text.encode()) > most for column in texts.values() for text in column):
        return None  # a token has at least a byte
    fitted = {
        name: tokenizers.fit(configs.get(name, TokenizerConfig()), column, name) for name, column in texts.items()
    }
    lengths = {name: [len(fitted[name].encode(text)) for text in column] for name, column in texts.items()}

    def memory(limit: int) -> int:
        return _memory_of(lengths, fitted, limit)

    knows_memory = is_auto and len(texts) == len(kinds) + 1 > 1
    budget = memory_budget() if knows_memory else None
    limit = asked or fit_limit(lengths, memory, budget)
    too_long = find_too_long(lengths, limit)
    longest = {name: max(column, default=0) for name, column in lengths.items()}
    loss = None
    if asked is None and too_long and budget is not None:
        whole = longest_row(lengths)
        loss = Loss(len(too_long), len(examples), limit, whole, memory(whole), total_memory() or 0)
    needed = memory(limit) if knows_memory else None
    return Foreseen({name: each.kind for name, each in fitted.items()}, longest, limit, too_long, needed, loss)


def spread(texts: Sequence[str]) -> Sequence[str]:
    """Return the texts or, of very many, an even sample: enough to tell how long tokens are."""
    return texts[:: max(1, -(-len(texts) // SAMPLE))]


def _count_tokens(tokenizer: Tokenizer, texts: Sequence[str], most: int) -> list[int]:
    """Return the number of tokens of each text; of very many, exactly only where there may be more than ``most``."""
    if len(texts) <= SAMPLE:
        return [len(tokenizer.encode(text)) for text in texts]
    sample = spread(texts)
    share = sum(len(tokenizer.encode(text)) for text in sample) / max(1, sum(map(len, sample)))
    return [
        len(tokenizer.encode(text)) if len(text.encode()) > most else min(most, round(share * len(text)))
        for text in texts
    ]


def _memory_of(lengths: Lengths, fitted: Mapping[str, Tokenizer], limit: int) -> int:
    """Estimate the memory that the model of ``auto`` needs, if rows above the limit are left out."""
    too_long = find_too_long(lengths, limit)
    kept = {
        name: [length + 1 for row, length in enumerate(column) if row not in too_long]
        for name, column in lengths.items()
    }
    sources = [name for name in kept if name != TARGET]
    longest = {name: max(column, default=1) for name, column in kept.items()}
    shape = auto.Shape(
        len(kept[TARGET]),
        sum(sum(kept[name]) for name in sources),
        sum(kept[TARGET]),
        max(fitted[name].size for name in sources),
        fitted[TARGET].size,
        max(longest.values()),
    )
    settings = auto.choose(shape, dict.fromkeys(sources, "text"))
    vocabularies = {name: tokenizer.size for name, tokenizer in fitted.items()}
    return estimate_memory(settings, Sizes({name: longest[name] for name in sources}, longest[TARGET], vocabularies))
