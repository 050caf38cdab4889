"""What ``auto`` chooses from the audit, and why: a pure function of the data, so the same file gives the same run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Shape:
    """The training data after tokenisation."""

    rows: int
    source_tokens: int
    target_tokens: int
    source_vocabulary: int
    target_vocabulary: int
    longest: int  # tokens, either side


def choose(shape: Shape) -> dict[str, Any]:
    """Settings under everything that the person said.

    Small data wants many small updates: some thousands of them, whatever the size of the file. The learning rate
    falls to nearly nothing by the end (cosine), which small data rewards more than a longer search at a high rate.
    """
    tokens = max(shape.target_tokens, shape.source_tokens)
    width, embedding, dropout = (256, 128, 0.3) if tokens < 400_000 else (384, 256, 0.3)
    epochs = 60 if tokens < 5_000 else 30 if tokens < 60_000 else 14 if tokens < 250_000 else 12
    batch = 64 * max(2, min(32, round(4 * (tokens / 30_000) ** 0.5)))  # grows with the root of the data
    per_epoch = max(1, tokens // batch)
    return {
        "sources": {
            "source": {
                "modality": {"kind": "text", "embedding": embedding, "dropout": dropout},
                "encoder": {"kind": "rnn", "cell": "lstm", "width": width, "layers": 1, "direction": "both"},
            }
        },
        "decoder": _lstm(width, embedding, dropout) | {"timing": "after", "attention": {"kind": "bilinear"}},
        "training": {
            "batch_tokens": max(batch, shape.longest),
            "max_epochs": epochs,
            "validate_every": max(20, per_epoch * epochs // 15),
            "patience": 8,
            "optim": {"learning_rate": 1e-3, "schedule": "cosine", "warmup": 100},
        },
    }


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
