"""Choose a model and its training for the data, where nobody named them (``preset = "auto"``).

The choice is a pure function of the data's sizes, so the same file gives the same run. Which family
of models suits which data was measured: experiments/auto has the tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from dragoman.parts import part

# A Transformer learns more in the same time from this many target tokens on: if they are characters,
MANY_TOKENS = 400_000
# and if they are subwords or words, which a large vocabulary tells.
LARGE_VOCABULARY, SOME_TOKENS = 1_500, 50_000
# Epochs of a recurrent model over text: so many of so many rows, fewer of more rows along a slope, within bounds.
EPOCHS, EPOCHS_ROWS, EPOCHS_SLOPE = 30, 10_000, 0.15
FEWEST_EPOCHS, MOST_EPOCHS = 6, 100
# While dev still rises at the end, training goes on for at most this share of its updates.
EXTENSION = 0.5
# CTC's share of the loss and of the ranking, for sound and other long sequences.
CTC_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of the training data after tokenization."""

    rows: int
    source_tokens: int  # of sources that are text
    target_tokens: int
    source_vocabulary: int
    target_vocabulary: int
    longest: int  # most tokens or frames of a row, on either side
    frames: Mapping[str, int] = field(default_factory=dict)  # positions of a long file, by source
    tagged: frozenset[str] = frozenset()  # sources whose rows have tags in angle brackets, from a small closed set


def choose(
    shape: Shape,
    kinds: Mapping[str, str] = MappingProxyType({"source": "text"}),
    can_build: Callable[[str], bool] = lambda kind: True,
) -> dict[str, Any]:
    """Return settings for a model with sources; whatever a person asks for goes above them.

    ``kinds`` are the modalities of the sources; ``can_build`` says whether encoders and decoders of
    a kind can have the settings that were asked for.

    Small data needs many small updates: some thousands of them, whatever the size of the file. The
    learning rate falls to nearly nothing by the end (cosine), which on small data is worth more
    than a longer search at a high rate. Files take far more positions than their targets have
    tokens, so with files a batch has a fixed number of rows, and epochs are counted by rows.
    """
    if wants_transformer(shape) and can_build("transformer"):
        return _transformer(shape, kinds)
    tokens = max(shape.target_tokens, shape.source_tokens)
    width, embedding, dropout = (256, 128, 0.3) if tokens < 400_000 else (384, 256, 0.3)
    epochs = count_epochs(shape.rows)
    batch = _batch(tokens)
    per_epoch = max(1, tokens // batch)
    warmup = 100
    if shape.frames:
        rows = 8 if shape.rows < 400 else 16 if shape.rows < 4_000 else 32
        batch = rows * max(*shape.frames.values(), shape.target_tokens // shape.rows)
        per_epoch = max(1, shape.rows // rows)
        epochs = max(10, min(400 if shape.rows < 400 else 100, 6_000 // per_epoch))
        warmup = 200
    return {
        "sources": {
            name: {
                "modality": _modality(kind, embedding, dropout),
                "encoder": dict(part("modality", kind).default_encoder(shape.frames.get(name, 0), width).settings),
            }
            for name, kind in kinds.items()
        },
        "decoder": _lstm(width, embedding, dropout) | {"timing": "after", "attention": {"kind": "bilinear"}},
        "training": {
            "batch_tokens": max(batch, shape.longest),
            "max_epochs": epochs,
            "extend": EXTENSION,
            "validate_every": max(20, per_epoch * epochs // 15),
            "patience": 8,
            "optim": {"learning_rate": 1e-3, "schedule": "cosine", "warmup": warmup},
        },
    }


def count_epochs(rows: int) -> int:
    """Return the epochs of a recurrent model over text: 60 of 100 rows, 30 of 10,000, half for a hundred times more.

    They follow the rows, not the tokens: inflection with 10,000 short rows still learnt in its 30th
    epoch (experiments/inflection).
    """
    return max(FEWEST_EPOCHS, min(MOST_EPOCHS, round(EPOCHS * (EPOCHS_ROWS / max(rows, 1)) ** EPOCHS_SLOPE)))


def choose_ctc(shape: Shape, kinds: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of CTC in training where the data calls for it; else none.

    It is for one long sequence, such as sound, whose target is several tokens in the same order: its
    loss finds where each token is, which attention alone does not learn from a few recordings. Half
    of the states must be free, so that there is room for blanks. Search goes without it: the native
    library and exported models search by themselves, and do not know CTC.
    """
    if len(kinds) != 1 or not shape.frames:
        return {}
    ((name, kind),) = kinds.items()
    modality = part("modality", kind)
    tokens = shape.target_tokens / shape.rows - 1  # without the end symbol
    states = shape.frames[name] / modality.default_encoder(shape.frames[name], 0).stride
    if modality.gives != "sequence" or tokens < 2 or states < 2 * tokens:
        return {}
    return {"training": {"ctc": CTC_SHARE}}


def choose_tags(encoders: Mapping[str, str]) -> dict[str, Any]:
    """Return settings for sources with tags, given the kinds of their encoders.

    With position vectors, every tag before a word moves its letters. A Transformer learns more in the
    same updates if it is told which tokens are tags (experiments/small/network-parts.md).
    """
    told = [name for name, encoder in encoders.items() if encoder == "transformer"]
    return {"sources": {name: {"modality": {"tags": True}} for name in told}}


def wants_transformer(shape: Shape) -> bool:
    """Return whether a Transformer learns more in the same time than a recurrent model.

    Words and subwords have a large vocabulary. With characters and other small vocabularies the
    recurrent model is ahead up to some hundred thousand tokens.
    """
    if shape.frames:
        return False
    if shape.target_vocabulary >= LARGE_VOCABULARY:
        return shape.target_tokens >= SOME_TOKENS
    return shape.target_tokens >= MANY_TOKENS


def _transformer(shape: Shape, kinds: Mapping[str, str]) -> dict[str, Any]:
    tokens = max(shape.target_tokens, shape.source_tokens)
    batch = _batch(tokens)
    epochs = max(6, min(30, 7_000_000 // tokens))
    per_epoch = max(1, tokens // batch)
    layers = {
        "kind": "transformer", "width": 128, "layers": 4, "heads": 4, "feed_forward": 256, "norm": "pre",
        "dropout": 0.15,
    }  # fmt: skip
    return {
        "sources": {
            name: {"modality": _modality(kind, 128, 0.0), "encoder": dict(layers)} for name, kind in kinds.items()
        },
        "decoder": dict(layers),
        "training": {
            "batch_tokens": max(batch, shape.longest),
            "max_epochs": epochs,
            "validate_every": max(20, per_epoch * epochs // 15),
            "patience": 8,
            "optim": {
                "learning_rate": 2e-3,
                "schedule": "cosine",
                "warmup": max(50, min(800, per_epoch * epochs // 10)),
            },
        },
    }


def _modality(kind: str, embedding: int, dropout: float) -> dict[str, Any]:
    return {"kind": kind, **part("modality", kind).default_settings(embedding, dropout)}


def _batch(tokens: int) -> int:
    """Return the tokens of a batch, which grow with the square root of the data."""
    return 64 * max(2, min(32, round(4 * math.sqrt(tokens / 30_000))))


def explain(shape: Shape, kinds: Mapping[str, str]) -> list[str]:
    """Return in sentences why sources have the encoders that were chosen."""
    reasons = {
        name: part("modality", kind).default_encoder(shape.frames.get(name, 0), 0).reason
        for name, kind in kinds.items()
    }
    return [f"{name}: {reason}" for name, reason in reasons.items() if reason]


def _lstm(width: int, embedding: int, dropout: float) -> dict[str, Any]:
    return {
        "kind": "rnn", "cell": "lstm", "width": width, "layers": 1, "embedding": embedding, "dropout": dropout,
    }  # fmt: skip


def choose_language_model(shape: Shape, chunk: int | None) -> dict[str, Any]:
    """Return settings for a language model. ``chunk``: a stream's tokens in a batch, if running.

    The dev loss itself is the score, and it rises again where a small model begins to memorise its
    text. So labels are not smoothed, patience is short, and the final weights are those of the best
    validation alone.
    """
    tokens = shape.target_tokens
    width, embedding, dropout = (256, 128, 0.3) if tokens < 400_000 else (512, 256, 0.3)
    epochs = 60 if tokens < 5_000 else 30 if tokens < 60_000 else 20 if tokens < 400_000 else 12
    batch = 64 * max(8, min(32, round(4 * (tokens / 30_000) ** 0.5)))
    batch = max(batch, shape.longest) if chunk is None else max(batch, 8 * chunk)  # at least eight streams
    per_epoch = max(1, tokens // batch)
    return {
        "decoder": _lstm(width, embedding, dropout),
        "training": {
            "batch_tokens": batch,
            "max_epochs": epochs,
            "validate_every": max(20, per_epoch * epochs // 20),
            "patience": 5,
            "average": 1,
            "label_smoothing": 0.0,
            "optim": {"learning_rate": 2e-3, "schedule": "cosine", "warmup": 100},
        },
        "search": {"beam": 1},  # people ask it to continue a text, and the likeliest continuation is dull
    }
