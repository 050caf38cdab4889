"""How far a run has come: a few counters, saved with every checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal


@dataclass
class Window:
    """Sums over the updates since the last report of training."""

    loss: float = 0.0
    smoothed_loss: float = 0.0
    tokens: int = 0
    norm: float = 0.0  # of the gradients
    updates: int = 0
    seconds: float = 0.0


@dataclass
class Progress:
    """The counters of a run. The names are those of the checkpoint's JSON header."""

    update: int = 0
    epoch: int = 0
    position: int = 0  # batches of this epoch that training has read
    epoch_updates: int = 0  # updates of the first epoch; 0: not counted yet
    tokens: int = 0
    seconds: float = 0.0  # of training, over all sessions
    validation_seconds: float = 0.0  # that the last validation took
    time_limit: float = 0.0  # the limit that ended training, if one did
    reductions: int = 0  # of the learning rate, on plateaus
    waited: int = 0  # validations since the best one
    waited_plateau: int = 0  # validations since the best one or the last reduction
    skipped: int = 0  # updates skipped because the gradient was not finite
    baseline: float | None = None  # mean reward of hard attention's choices; None: no choice was made yet
    best: list[float] = field(default_factory=list)  # (score, -loss) of the best validation
    best_update: int = 0
    snapshots: list[list[float]] = field(default_factory=list)  # (score, -loss, update) of the weights kept
    window: Window = field(default_factory=Window)  # what the next report will sum up
    first_loss: float | None = None  # of the first update
    above: int = 0  # updates in a row whose loss was above that of a guess
    diverged: str = ""  # how training failed; empty while it has not
    largest_batch: int = 0  # positions that fit into memory; larger batches are split. 0: all fitted
    split: int = 0  # batches that were split
    unvalidated: bool = False  # the validation after the last update was interrupted
    written: list[int] = field(default_factory=list)  # updates whose snapshots are on disk; the writer sets it
    metrics_bytes: int = 0  # size of metrics.jsonl at this point; the writer sets it
    done: str = ""  # why training ended; empty while it has not

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Progress:
        """Return the progress that ``dataclasses.asdict`` made plain."""
        return cls(**{**plain, "window": Window(**plain.get("window", {}))})

    def copy(self) -> Progress:
        """Return a copy that shares nothing that training changes in place."""
        return replace(self, window=replace(self.window))

    def record_validation(self, rank: list[float], plateau_patience: int) -> bool:
        """Count a validation of this rank (score, -loss) and return whether it is the best so far."""
        if not self.best or rank > self.best:
            self.best, self.best_update = rank, self.update
            self.waited = self.waited_plateau = 0
            return True
        self.waited += 1
        self.waited_plateau += 1
        if self.waited_plateau > plateau_patience:
            self.reductions += 1
            self.waited_plateau = 0
        return False

    def record_snapshot(self, rank: list[float], count: int, which: Literal["best", "last"]) -> bool:
        """Keep the ``count`` best or last snapshots, and return whether this is one of them."""
        candidates = [*self.snapshots, [*rank, float(self.update)]]
        if which == "best":
            candidates.sort(reverse=True)
        else:
            candidates.sort(key=lambda entry: -entry[2])
        self.snapshots = candidates[:count]
        return any(entry[2] == self.update for entry in self.snapshots)
