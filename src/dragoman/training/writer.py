"""Writes what a trainer reports into the folder of the run.

In a group of processes only the first has a writer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

from dragoman.files import naming
from dragoman.runs.folder import CHECKPOINT
from dragoman.runs.history import METRICS
from dragoman.training.checkpoints.checkpoint import Checkpoint
from dragoman.training.checkpoints.snapshots import Snapshots
from dragoman.training.events import CheckpointDue, Event, SnapshotDue, Started, Stepped, Stopped, Validated


def find_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the checkpoint of a run, or None where it has none yet."""
    path = folder / CHECKPOINT
    return Checkpoint.read(path) if path.exists() else None


class RunWriter:
    """Writes metrics.jsonl, the checkpoint and the snapshots.

    A run may be killed at any moment. What it reported after its last checkpoint is reported again
    when it resumes from there, so ``record`` first cuts metrics.jsonl to what that checkpoint knew.
    """

    def __init__(self, folder: Path, resumed: Checkpoint | None = None) -> None:
        """``resumed``: the checkpoint that training resumes from."""
        self.checkpoint, self.metrics, self.snapshots = folder / CHECKPOINT, folder / METRICS, Snapshots(folder)
        self._known_bytes = 0 if resumed is None else resumed.progress.metrics_bytes

    def record(self, events: Iterable[Event]) -> Iterator[Event]:
        """Write every event and pass it on."""
        self.metrics.parent.mkdir(parents=True, exist_ok=True)
        if self.metrics.exists():
            os.truncate(self.metrics, min(self._known_bytes, self.metrics.stat().st_size))
        for event in events:
            self._write(event)
            yield event

    def _write(self, event: Event) -> None:
        if isinstance(event, SnapshotDue):
            self.snapshots.write(event.update, event.weights)
        elif isinstance(event, CheckpointDue):
            self._write_checkpoint(event.checkpoint)
        elif isinstance(event, Started | Stepped | Validated | Stopped):
            line = json.dumps({"event": type(event).__name__.lower(), **asdict(event)}, ensure_ascii=False)
            with naming(self.metrics), open(self.metrics, "a", encoding="utf-8") as file:
                file.write(line + "\n")

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        size = self.metrics.stat().st_size if self.metrics.exists() else 0
        progress = replace(checkpoint.progress, metrics_bytes=size)
        replace(checkpoint, progress=progress).write(self.checkpoint)
        self.snapshots.delete_others(progress)  # only now: until then the old checkpoint needs them
