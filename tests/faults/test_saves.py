"""Every system call of a save fails once, or the machine stops there: a checkpoint that can be used always exists."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from dragoman.errors import UserError
from dragoman.files import read_json, write_json
from dragoman.training.checkpoints.checkpoint import Checkpoint
from dragoman.training.checkpoints.progress import Progress
from dragoman.training.events import CheckpointDue, Event, SnapshotDue
from dragoman.training.writer import RunWriter, find_checkpoint

CALLS = ("open", "write", "fsync", "rename", "link", "unlink", "mkdir", "close")


class Crash(BaseException):
    """The machine stopped here."""


@contextmanager
def failing(monkeypatch: pytest.MonkeyPatch, number: int, how: int | None) -> Iterator[list[str]]:
    """Let system call ``number`` fail with the error ``how``; None: let nothing happen from there on.

    Yields the names of the calls that were made.
    """
    made: list[str] = []

    def replacing(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            made.append(name)
            if len(made) == number and how is not None:
                if name == "close":  # the descriptor is released all the same
                    real(*arguments, **options)
                raise OSError(how, os.strerror(how))
            if len(made) >= number and how is None:
                if name == "close":
                    return real(*arguments, **options)
                raise Crash
            return real(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, replacing(name))
        yield made


def state(update: int) -> tuple[Checkpoint, dict[str, torch.Tensor]]:
    weights = {"layer": torch.full((5, 7), float(update))}
    progress = Progress(
        update=update, snapshots=[[1.0, -1.0, float(each)] for each in (update, update - 1) if each > 0]
    )
    return Checkpoint(progress, {f"model.{name}": tensor for name, tensor in weights.items()}), weights


def save(folder: Path, update: int, resumed: Checkpoint | None = None) -> None:
    """Write a snapshot and a checkpoint, as training does."""
    checkpoint, weights = state(update)
    events: list[Event] = [SnapshotDue(update, weights), CheckpointDue(update, checkpoint)]
    for _ in RunWriter(folder, resumed).record(events):
        pass


@pytest.mark.parametrize("how", [errno.ENOSPC, errno.EIO, None], ids=["full", "broken", "crash"])
def test_a_usable_checkpoint_always_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: int | None, record: Callable[[str, dict[str, Any]], None]
) -> None:
    number = 0
    for update in (1, 2, 3):
        save(tmp_path / "counted", update, find_checkpoint(tmp_path / "counted"))
    resumed = find_checkpoint(tmp_path / "counted")
    with failing(monkeypatch, 10**9, None) as made:
        save(tmp_path / "counted", 4, resumed)
    calls = len(made)
    by_name: dict[str, int] = {}
    while number < calls:
        number += 1
        folder = tmp_path / str(number)
        for update in (1, 2, 3):
            save(folder, update, find_checkpoint(folder) if folder.exists() else None)
        before = find_checkpoint(folder)
        assert before is not None and before.progress.update == 3
        with failing(monkeypatch, number, how) as made:
            try:
                save(folder, 4, before)
            except (Crash, OSError, UserError) as error:
                told = str(error)
                assert how is None or str(folder) in told, told
        by_name[made[number - 1]] = by_name.get(made[number - 1], 0) + 1
        found = find_checkpoint(folder)
        assert found is not None and found.progress.update in (3, 4), (number, made)
        assert not found.notes, (number, made, found.notes)  # nothing that it needs was deleted or is half written
        for update in range(found.progress.update + 1, 6):  # and training goes on from there
            save(folder, update, find_checkpoint(folder))
        after = find_checkpoint(folder)
        assert after is not None and after.progress.update == 5
        left = {path.stem for path in folder.glob("snapshots/[0-9]*")}
        assert left == {"00000003", "00000004", "00000005"}, (number, made)  # what the two checkpoints need
        assert not [path for path in folder.rglob(".*partial") if "snapshots" not in str(path)]
    assert calls > 20 and {"write", "fsync", "rename", "link", "open"} <= by_name.keys()
    record(f"failing system calls ({(how and errno.errorcode[how]) or 'crash'})", {"calls": number, "by name": by_name})


def test_a_file_system_without_links_keeps_two_checkpoints_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    for update in (1, 2, 3):
        save(tmp_path, update, find_checkpoint(tmp_path))
    (tmp_path / "checkpoint.safetensors").unlink()
    found = find_checkpoint(tmp_path)
    assert found is not None and found.progress.update == 2


def test_a_full_disk_names_the_file_and_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_json(tmp_path / "file.json", {"a": 1})
    with failing(monkeypatch, 4, errno.ENOSPC) as made, pytest.raises(UserError) as told:
        write_json(tmp_path / "file.json", {"a": 2})
    assert made[3] == "write" and "file.json: the disk is full" in str(told.value) and "missing" in str(told.value)
    assert read_json(tmp_path / "file.json") == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["file.json"]


def test_the_checksum_is_that_of_the_file_with_zeros_in_its_place(tmp_path: Path) -> None:
    import hashlib

    write_json(tmp_path / "file.json", {"a": "ü", "b": [1]})
    data = (tmp_path / "file.json").read_bytes()
    digest = json.loads(data)["sha256"]
    assert hashlib.sha256(data.replace(digest.encode(), b"0" * 64)).hexdigest() == digest
