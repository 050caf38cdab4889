"""What a training run tells. The terminal, ``metrics.jsonl`` and any page consume these; the trainer prints nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

ENDLESS = 10**9  # updates: neither these nor epochs are limited


@dataclass(frozen=True, slots=True)
class Scores:
    """What a validation found. Higher ``score`` is better."""

    loss: float
    score: float
    metric: str
    details: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Started:
    update: int  # > 0: goes on where it stopped
    last_update: int
    batches: int  # in an epoch
    padding: float  # share of the target positions
    source_padding: float


@dataclass(frozen=True, slots=True)
class Stepped:
    update: int
    epoch: int
    loss: float  # per target token, smoothed labels included, since the last of these
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float
    seconds: float
    gold_share: float = 1.0  # of the decoder's inputs; the others are its own (scheduled sampling)


@dataclass(frozen=True, slots=True)
class Validated:
    update: int
    epoch: int
    loss: float  # per target token, no smoothing
    score: float
    metric: str
    best: bool
    seconds: float
    details: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Saved:
    update: int


@dataclass(frozen=True, slots=True)
class Stopped:
    update: int
    reason: str
    finished: bool  # False: the same command goes on from here
    seconds: float


Event: TypeAlias = Started | Stepped | Validated | Saved | Stopped
