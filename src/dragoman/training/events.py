"""What a training run reports. The terminal, the run's folder and any page consume these events.

The trainer computes and yields them. It prints nothing and writes no file: ``writer.RunWriter``
does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from dragoman.runs.history import ENDLESS as ENDLESS

if TYPE_CHECKING:  # events are imported by the command line, which shows its help without torch
    from torch import Tensor

    from dragoman.evaluation.metrics import Report
    from dragoman.training.checkpoints.checkpoint import Checkpoint

PAUSED = "paused"  # why training stopped: it was told beforehand to stop at this update


@dataclass(frozen=True, slots=True)
class Scores:
    """The result of a validation. A higher ``score`` is better."""

    loss: float
    score: float
    metric: str
    details: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Started:
    """Training begins, or resumes."""

    update: int  # > 0: resumed after this update
    last_update: int
    batches: int  # per epoch
    padding: float  # share of the target positions
    source_padding: float
    max_time: float | None = None  # seconds of training, earlier sessions of the run included
    ending_tokens: int = 0  # of the work after the last update (``forecast.Ending``), which the limit covers too
    ending_validations: float = 0.0


@dataclass(frozen=True, slots=True)
class Stepped:
    """Some updates were made: means since the last report."""

    update: int
    epoch: int
    loss: float  # per target token, no smoothing: comparable with that of a validation
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float
    seconds: float
    gold_share: float = 1.0  # of the decoder's inputs; the others are its own predictions (scheduled sampling)
    smoothed_loss: float = (
        0.0  # what training minimises: with smoothed labels, and the source's tokens where they count
    )


@dataclass(frozen=True, slots=True)
class Validated:
    """The model was validated on dev."""

    update: int
    epoch: int
    loss: float  # per target token, no smoothing
    score: float
    metric: str
    best: bool
    seconds: float
    details: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Warned:
    """Something happened that a person should know: a damaged file, a batch that did not fit into memory."""

    update: int
    message: str


@dataclass(frozen=True, slots=True)
class SnapshotDue:
    """The weights are among those that the final model is averaged from, and have to be kept.

    They are the model's own tensors: write or copy them before asking for the next event.
    """

    update: int
    weights: Mapping[str, Tensor] = field(repr=False)


@dataclass(frozen=True, slots=True)
class CheckpointDue:
    """The state of training has to be saved. Its tensors are live, as those of ``SnapshotDue``."""

    update: int
    checkpoint: Checkpoint = field(repr=False)


@dataclass(frozen=True, slots=True)
class Stopped:
    """Training is over, or was interrupted."""

    update: int
    reason: str
    finished: bool  # False: the same command resumes from here, unless training diverged
    seconds: float
    diverged: bool = False  # the model is worse than one that guesses; ``reason`` says how that was noticed


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The final weights were evaluated. A run that was evaluated before does not report it again."""

    side: str  # "test" or "dev"
    report: Report


Event: TypeAlias = Started | Stepped | Validated | Warned | SnapshotDue | CheckpointDue | Stopped | Evaluated
