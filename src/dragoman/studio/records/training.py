"""How a training went."""

from __future__ import annotations

from dragoman.studio.records.base import Record


class Started(Record):
    update: int  # > 0: went on where it had stopped
    last_update: int
    batches: int  # in an epoch


class Stepped(Record):
    update: int
    epoch: int
    loss: float | None  # per target token, smoothing included; None: not a number
    learning_rate: float
    gradient_norm: float | None
    tokens_per_second: float
    seconds: float
    gold_share: float


class Validated(Record):
    update: int
    epoch: int
    loss: float | None  # per target token
    score: float | None  # higher is better: negated where lower is better
    metric: str  # label of the metric
    best: bool
    seconds: float
    details: dict[str, float | None]  # by name of the metric, as it is


class Stopped(Record):
    update: int
    reason: str
    finished: bool
    seconds: float


class Training(Record):
    """Events since an offset. Ask again with ``after=offset`` for what came since."""

    run: str
    offset: int  # bytes of metrics.jsonl read so far
    restarted: bool  # the file is not the one read before: forget what was read, this is all of it
    started: list[Started]
    stepped: list[Stepped]
    validated: list[Validated]
    stopped: Stopped | None  # the last event, if training has ended
