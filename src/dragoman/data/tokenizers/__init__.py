"""Text to ids and back: each kind of tokeniser is one file here, and the filename is its name.

May import the ground and ``data``; sentencepiece is imported when a subword tokeniser is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

from dragoman.data.tokenizers._base import Tokenizer, TokenizerConfig, kinds, tokenizer_class
from dragoman.data.tokenizers._choose import choose, choose_together
from dragoman.errors import UserError

__all__ = [
    "Tokenizer", "TokenizerConfig", "choose", "choose_together", "fit", "kinds", "load", "resolve",
    "segmentation_sampler", "tokenizer_class",
]  # fmt: skip


def resolve(
    config: TokenizerConfig, texts: Sequence[str], side: str, choice: tuple[str, str] | None = None
) -> tuple[TokenizerConfig, str]:
    """Replace the kind "auto" by one that suits the texts; return the settings and the reason.

    ``choice`` is a kind and a reason, if it was chosen with other texts in view.
    """
    if config.kind != "auto":
        return config, ""
    kind, reason = choice or choose(texts, side)
    chosen = config.resolved(kind)
    unused = [
        name
        for name in TokenizerConfig.model_fields
        if name != "kind" and getattr(config, name) != getattr(chosen, name)
    ]
    if unused:
        reason += f" The setting {', '.join(unused)} has no meaning for {kind} and is not used."
    return chosen, reason


def fit(
    config: TokenizerConfig, texts: Iterable[str], side: str = "text", choice: tuple[str, str] | None = None
) -> Tokenizer:
    """Learn a tokeniser from ``texts``; for a shared one, give the texts of both sides at once.

    ``choice`` is a kind for "auto" and the reason for it, if that was chosen with other texts in view.
    Its ``notes`` say what a person should know: why "auto" chose its kind, a size that could not be
    reached.
    """
    if iter(texts) is texts:
        texts = list(texts)  # an iterator is empty after one pass
    if not any(texts):
        raise UserError(f"{side}: there is no text to learn a vocabulary from")
    reason = ""
    if config.kind == "auto":
        texts = texts if isinstance(texts, Sequence) else list(texts)
        config, reason = resolve(config, texts, side, choice)
    tokenizer = tokenizer_class(config.kind).fit(config, texts)
    if reason:
        tokenizer.notes.insert(0, reason)
    return tokenizer


def load(folder: Path, name: str) -> Tokenizer:
    """Load the tokeniser that was saved as ``name`` in ``folder``."""
    return Tokenizer.load(folder, name)


def segmentation_sampler(
    tokenizer: Tokenizer, texts: Sequence[str], end: int
) -> Callable[[np.random.Generator], list[np.ndarray]]:
    """Return a function that tokenises all texts with a new random segmentation, for each epoch.

    Every text is closed by the token ``end``. The texts are prepared at the first call: dev texts
    never need it.
    """
    prepared = cache(lambda: tokenizer.sampler(texts, end))

    def sample(generator: np.random.Generator) -> list[np.ndarray]:
        ids, lengths = prepared()(generator)
        return [ids[begin:stop] for begin, stop in pairwise([0, *np.cumsum(lengths).tolist()])]

    return sample
