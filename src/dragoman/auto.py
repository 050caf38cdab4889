"""What ``auto`` chooses from the audit, and why: a pure function of the data, so the same file gives the same run.

Which family suits which data was measured: experiments/auto has the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

STATES = 60  # that attention chooses from with ease
MANY_TOKENS = 400_000  # of targets in letters: from here on a Transformer learns more in the same time
LARGE_VOCABULARY, SOME_TOKENS = 1_500, 50_000  # and of pieces of words: a Transformer's with fewer tokens already


@dataclass(frozen=True, slots=True)
class Shape:
    """The training data after tokenisation."""

    rows: int
    source_tokens: int  # of text
    target_tokens: int
    source_vocabulary: int
    target_vocabulary: int
    longest: int  # tokens or frames, either side
    frames: Mapping[str, int] = field(default_factory=dict)  # of sources that are files: positions of a long one


def choose(
    shape: Shape,
    kinds: Mapping[str, str] = MappingProxyType({"source": "text"}),
    suits: Callable[[str], bool] = lambda family: True,
) -> dict[str, Any]:
    """Settings under everything that the person said. ``suits``: can a kind of encoder and decoder have what was said?

    Small data wants many small updates: some thousands of them, whatever the size of the file. The learning rate
    falls to nearly nothing by the end (cosine), which small data rewards more than a longer search at a high rate.

    ``kinds`` are the modalities of the sources. Files take far more positions than their targets have tokens: there a
    batch is so many rows, and epochs are counted by rows.
    """
    if wants_transformer(shape) and suits("transformer"):
        return _transformer(shape, kinds)
    tokens = max(shape.target_tokens, shape.source_tokens)
    width, embedding, dropout = (256, 128, 0.3) if tokens < 400_000 else (384, 256, 0.3)
    epochs = 60 if tokens < 5_000 else 30 if tokens < 100_000 else 14 if tokens < 250_000 else 12
    batch = _batch(tokens)
    per_epoch = max(1, tokens // batch)
    warmup = 100
    if shape.frames:
        rows = 16 if shape.rows < 4_000 else 32
        batch = rows * max(*shape.frames.values(), shape.target_tokens // shape.rows)
        per_epoch = max(1, shape.rows // rows)
        epochs = max(10, min(100, 6_000 // per_epoch))
        warmup = 200
    return {
        "sources": {
            name: {
                "modality": {"kind": "text", "embedding": embedding, "dropout": dropout},
                "encoder": {"kind": "rnn", "cell": "lstm", "width": width, "layers": 1, "direction": "both"},
            }
            if kind == "text"
            else {"modality": {"kind": kind}, "encoder": _media_encoder(kind, shape.frames.get(name, 0), width)}
            for name, kind in kinds.items()
        },
        "decoder": _lstm(width, embedding, dropout) | {"timing": "after", "attention": {"kind": "bilinear"}},
        "training": {
            "batch_tokens": max(batch, shape.longest),
            "max_epochs": epochs,
            "validate_every": max(20, per_epoch * epochs // 15),
            "patience": 8,
            "optim": {"learning_rate": 1e-3, "schedule": "cosine", "warmup": warmup},
        },
    }


def wants_transformer(shape: Shape) -> bool:
    """Is this data that a Transformer learns more of in the same time than a recurrent model?

    Words and pieces of words have a large vocabulary. With letters and other small ones the recurrent model is ahead up
    to some hundred thousand tokens.
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
            name: {"modality": {"kind": "text", "embedding": 128, "dropout": 0.0}, "encoder": dict(layers)}
            for name in kinds
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


def _batch(tokens: int) -> int:
    """Tokens of a batch: it grows with the root of the data."""
    return 64 * max(2, min(32, round(4 * (tokens / 30_000) ** 0.5)))


def _media_encoder(kind: str, frames: int, width: int) -> dict[str, Any]:
    """Regions for pictures; a pyramid for what is long, so that attention has some dozens of states to choose from."""
    if kind == "image":
        return {"kind": "grid"}
    halvings = next((n for n in range(3) if frames <= STATES * 2**n), 3)
    if halvings == 0:
        return {"kind": "rnn", "cell": "lstm", "width": width, "layers": 1, "direction": "both"}
    return {"kind": "pyramid", "cell": "lstm", "width": width, "layers": 1 + halvings, "dropout": 0.2}


def explain(shape: Shape, kinds: Mapping[str, str]) -> list[str]:
    """Why text is modelled and files are read as they are, in sentences."""
    reasons = []
    for name, kind in kinds.items():
        frames = shape.frames.get(name, 0)
        chosen = _media_encoder(kind, frames, 0)
        if kind == "image":
            reasons.append(f"{name}: pictures, seen as a grid of regions that attention chooses from")
        elif kind != "text" and chosen["kind"] == "rnn":
            reasons.append(f"{name}: {kind} of up to about {frames:,} frames, short enough to read each")
        elif kind != "text":
            halvings = chosen["layers"] - 1
            reasons.append(
                f"{name}: {kind} of up to about {frames:,} frames, halved {halvings} time{'s' * (halvings > 1)} on the "
                "way up, so that attention has fewer states to choose from"
            )
    return reasons


def _lstm(width: int, embedding: int, dropout: float) -> dict[str, Any]:
    return {
        "kind": "rnn", "cell": "lstm", "width": width, "layers": 1, "embedding": embedding, "dropout": dropout,
    }  # fmt: skip


def choose_language_model(shape: Shape, chunk: int | None) -> dict[str, Any]:
    """As ``choose``, without a source. ``chunk``: tokens of a stream in a batch, for running text.

    The dev loss itself is the score, and it turns where a small model begins to know its text by heart: so labels are
    not smoothed, patience is short, and the weights are those of the best validation, not a mean with worse ones.
    """
    tokens = shape.target_tokens
    width, embedding, dropout = (256, 128, 0.3) if tokens < 400_000 else (512, 256, 0.3)
    epochs = 60 if tokens < 5_000 else 30 if tokens < 60_000 else 20 if tokens < 400_000 else 12
    batch = 64 * max(8, min(32, round(4 * (tokens / 30_000) ** 0.5)))
    batch = max(batch, shape.longest) if chunk is None else max(batch, 8 * chunk)  # eight streams at least
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
        "search": {"beam": 1},  # what people ask of it is to go on with a text; the likeliest of all goes on dully
    }
