"""The course of a training."""

from __future__ import annotations

from dragoman.studio.records.base import Record


class Started(Record):
    """Training started, or was resumed."""

    update: int
    """Updates done before; above 0 where training was resumed."""
    last_update: int
    batches: int
    """Batches of an epoch."""


class Stepped(Record):
    """The latest updates of the training."""

    update: int
    epoch: int
    loss: float | None
    """Per target token, without label smoothing; None if it is not finite."""
    learning_rate: float
    gradient_norm: float | None
    tokens_per_second: float
    seconds: float
    gold_share: float
    """Share of decoder inputs that were gold tokens, with scheduled sampling."""


class Validated(Record):
    """A validation on the dev rows."""

    update: int
    epoch: int
    loss: float | None
    """Per target token; None if it is not finite."""
    score: float | None
    """Higher is better: metrics for which lower is better are negated."""
    metric: str
    """Label of the metric."""
    best: bool
    seconds: float
    details: dict[str, float | None]
    """Values by name of the metric, not negated."""


class Stopped(Record):
    """The end of the training."""

    update: int
    reason: str
    finished: bool
    seconds: float


class Training(Record):
    """The events since an offset. A request with ``after=offset`` gives those that came later."""

    run: str
    offset: int
    """Bytes of metrics.jsonl that were read so far."""
    restarted: bool
    """Whether the file is a new one: these are all events, the earlier ones are void."""
    started: list[Started]
    stepped: list[Stepped]
    validated: list[Validated]
    stopped: Stopped | None
    """The last event, if training has ended."""
