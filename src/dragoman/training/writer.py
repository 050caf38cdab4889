"""Writes what a trainer reports into the folder of the run, and finds where a run can be resumed.

In a group of processes only the first has a writer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import torch

from dragoman.errors import UserError
from dragoman.files import HeldFolder, append_line, file_size, truncate_file
from dragoman.runs.folder import CHECKPOINT, CHECKPOINTS, PREVIOUS_CHECKPOINT
from dragoman.runs.history import METRICS
from dragoman.runs.weights import check_shapes
from dragoman.training.checkpoints.checkpoint import Checkpoint, read_progress
from dragoman.training.checkpoints.snapshots import Snapshots, kept_updates
from dragoman.training.events import (
    CheckpointDue,
    Event,
    SnapshotDue,
    Started,
    Stepped,
    Stopped,
    Validated,
    Warned,
)


def find_checkpoint(folder: Path, run: str = "", model: torch.nn.Module | None = None) -> Checkpoint | None:
    """Return the checkpoint to resume a run from, or None where it has none yet.

    It is the newest one, if this and all the snapshots that it needs are as they were written; else
    the one before it. Where that cannot be used either, the newest one whose own file is good, without
    the damaged snapshots. Its ``notes`` say so. ``run``: the name of the run; ``model``: what
    the weights have to fit.
    """
    snapshots = Snapshots(folder, run)
    problems: list[str] = []  # of either checkpoint: damage is told even where it does no harm yet
    complete: Checkpoint | None = None
    incomplete: list[tuple[Checkpoint, set[int]]] = []
    for path in (folder / name for name in CHECKPOINTS):
        if not os.path.lexists(path):
            continue
        try:
            checkpoint = Checkpoint.read(path, run)
            shapes = {name: tuple(tensor.shape) for name, tensor in checkpoint.weights.items()}
            if model is not None:
                check_shapes(model, shapes, path)
        except UserError as error:
            problems.append(str(error))
            continue
        damage = snapshots.find_damage(checkpoint.progress, shapes)
        if not damage:
            complete = complete or checkpoint
            continue
        problems += [problem for problem in damage.values() if problem not in problems]
        incomplete.append((checkpoint, set(damage)))
    if complete is not None:
        return _with_notes(complete, problems)
    if incomplete:
        checkpoint, lost = incomplete[0]
        kept = [entry for entry in checkpoint.progress.snapshots if int(entry[2]) not in lost]
        progress = replace(checkpoint.progress, snapshots=kept)
        without = "; the weights of these files will be missing from the average that makes the final model"
        return _with_notes(replace(checkpoint, progress=progress), problems, without)
    if problems:
        raise UserError("\n".join(problems))
    return None


def _with_notes(checkpoint: Checkpoint, problems: list[str], consequence: str = "") -> Checkpoint:
    if not problems:
        return checkpoint
    last = f"training goes on from {checkpoint.path} (update {checkpoint.progress.update:,}){consequence}"
    return replace(checkpoint, notes=(*problems, last))


class RunWriter:
    """Writes metrics.jsonl, the last two checkpoints and the snapshots that they need.

    A run may be killed at any moment. What it reported after its last checkpoint is reported again
    when it resumes from there, so ``record`` first cuts metrics.jsonl to what that checkpoint knew.
    """

    def __init__(
        self, folder: Path, resumed: Checkpoint | None = None, run: str = "", held: HeldFolder | None = None
    ) -> None:
        """``resumed``: what training resumes from; ``run``: the run's name; ``held``: its folder."""
        self.folder, self.run, self.held = folder, run, held
        self.checkpoint, self.metrics, self.snapshots = folder / CHECKPOINT, folder / METRICS, Snapshots(folder, run)
        self._known_bytes = 0 if resumed is None else resumed.progress.metrics_bytes
        self._newest: list[int] = []  # updates whose snapshots the newest checkpoint needs
        self._previous: list[int] = []  # those that the one before it needs
        self._keeps_newest = True  # as the previous one, when the next is written
        if resumed is not None:
            self._newest = self._previous = kept_updates(resumed.progress)
            if resumed.path is not None and resumed.path.name == PREVIOUS_CHECKPOINT:
                self._keeps_newest = False  # it cannot be used, and must not take the place of the good one
            elif (previous := folder / PREVIOUS_CHECKPOINT).exists():
                with suppress(UserError):
                    self._previous = kept_updates(read_progress(previous))
        self._written = {*self._newest, *self._previous}  # updates whose snapshots are this run's own files
        if resumed is not None:
            self._written.update(resumed.progress.written)

    def record(self, events: Iterable[Event]) -> Iterator[Event]:
        """Write every event and pass it on. Raises ``FolderGone`` if the folder is no longer there."""
        if self.held is None:
            self.folder.mkdir(parents=True, exist_ok=True)
        truncate_file(self.metrics, self._known_bytes)
        self._delete_others()  # which a kill may have left
        for event in events:
            if self.held is not None:
                self.held.check()
            self._write(event)
            yield event

    def _write(self, event: Event) -> None:
        if isinstance(event, SnapshotDue):
            self._written.add(event.update)
            self.snapshots.write(event.update, event.weights)
        elif isinstance(event, CheckpointDue):
            self._write_checkpoint(event.checkpoint)
        elif isinstance(event, Started | Stepped | Validated | Warned | Stopped):
            fields = {"event": type(event).__name__.lower(), **asdict(event)}
            append_line(self.metrics, json.dumps(fields, ensure_ascii=False))

    def _write_checkpoint(self, checkpoint: Checkpoint) -> None:
        written = sorted(self._written)
        progress = replace(checkpoint.progress, written=written, metrics_bytes=file_size(self.metrics))
        previous = PREVIOUS_CHECKPOINT if self._keeps_newest else None
        replace(checkpoint, progress=progress).write(self.checkpoint, self.run, previous)
        if self._keeps_newest:
            self._previous = self._newest
        self._newest, self._keeps_newest = kept_updates(progress), True
        self._delete_others()  # only now: until then the old checkpoints needed them

    def _delete_others(self) -> None:
        """Delete the run's own snapshots that neither checkpoint needs."""
        needed = {*self._newest, *self._previous}
        if others := self._written - needed:
            self.snapshots.delete(others)
        self._written &= needed
