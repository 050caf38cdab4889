"""Text to ids and back: one kind of tokeniser is one file of this folder, and the filename is its name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from dragoman.data.tokenizers._choose import choose
from dragoman.data.tokenizers.base import Tokenizer, TokenizerConfig, kinds, tokenizer_class
from dragoman.errors import UserError

__all__ = ["Tokenizer", "TokenizerConfig", "choose", "fit", "kinds", "load", "resolve", "tokenizer_class"]


def resolve(config: TokenizerConfig, texts: Sequence[str], side: str) -> tuple[TokenizerConfig, str]:
    """``config`` with "auto" replaced by a kind, and the reason in a sentence (empty if nothing was to be chosen)."""
    if config.kind != "auto":
        return config, ""
    kind, reason = choose(texts, side)
    chosen = config.resolved(kind)
    unused = [
        name
        for name in TokenizerConfig.model_fields
        if name != "kind" and getattr(config, name) != getattr(chosen, name)
    ]
    if unused:
        reason += f" The setting {', '.join(unused)} has no meaning for {kind} and is not used."
    return chosen, reason


def fit(config: TokenizerConfig, texts: Iterable[str], side: str = "text") -> Tokenizer:
    """Learn a tokeniser from ``texts``; give the texts of both sides at once for a shared one.

    What a person should be told (why "auto" chose so, a size that could not be reached) is in ``notes``.
    """
    if iter(texts) is texts:
        texts = list(texts)  # an iterator runs dry after one pass
    if not any(texts):
        raise UserError(f"{side}: there is no text to learn a vocabulary from")
    reason = ""
    if config.kind == "auto":
        texts = texts if isinstance(texts, Sequence) else list(texts)
        config, reason = resolve(config, texts, side)
    tokenizer = tokenizer_class(config.kind).fit(config, texts)
    if reason:
        tokenizer.notes.insert(0, reason)
    return tokenizer


def load(folder: Path, name: str) -> Tokenizer:
    """The tokeniser saved as ``name`` in ``folder``."""
    return Tokenizer.load(folder, name)
