"""What ``auto`` chooses from the audit, and why. A pure function of the data, so that the same file gives the same run."""

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


def choose(shape: Shape) -> tuple[dict[str, Any], list[str]]:
    """Settings under everything that the person said, and a sentence for each."""
    tokens = shape.target_tokens
    if tokens < 400_000:
        width, embedding, dropout = 256, 128, 0.3
    elif tokens < 4_000_000:
        width, embedding, dropout = 384, 256, 0.2
    else:
        width, embedding, dropout = 512, 256, 0.1
    batch = 512 if tokens < 100_000 else 1024 if tokens < 400_000 else 2048
    per_epoch = max(1, max(shape.source_tokens, tokens) // batch)
    epochs = max(8, min(60, 6000 // per_epoch))
    settings = {
        "sources": {
            "source": {
                "modality": {"kind": "text", "embedding": embedding, "dropout": dropout},
                "encoder": {"kind": "rnn", "cell": "lstm", "width": width, "layers": 1, "direction": "both"},
            }
        },
        "decoder": {
            "kind": "rnn",
            "cell": "lstm",
            "width": width,
            "layers": 1,
            "embedding": embedding,
            "timing": "after",
            "attention": {"kind": "bilinear"},
            "dropout": dropout,
        },
        "training": {
            "batch_tokens": max(batch, shape.longest),
            "max_epochs": epochs,
            "patience": max(5, epochs // 4),
            "optim": {"learning_rate": 1e-3, "schedule": "cosine", "warmup": 100},
        },
    }
    reasons = [
        f"model: bidirectional LSTM of width {width} and an LSTM decoder with attention, "
        f"because there are {tokens:,} target tokens to learn from",
        f"training: at most {epochs} epochs of about {per_epoch:,} updates, batches of {batch:,} tokens",
    ]
    return settings, reasons
