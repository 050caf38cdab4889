"""Keep other processes out of a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dragoman.errors import UserError
from dragoman.files.folders import FolderGone


@dataclass(frozen=True, slots=True)
class HeldFolder:
    """A folder that this process works in."""

    path: Path
    number: tuple[int, int]  # device and inode: what makes it this very folder
    descriptor: int | None  # a child process that inherits it holds the lock too; None: no lock

    @classmethod
    def of(cls, path: Path, descriptor: int | None = None) -> HeldFolder:
        return cls(path, _number(path), descriptor)

    def check(self) -> None:
        """Raise ``FolderGone`` if the path no longer leads to this very folder."""
        try:
            number = _number(self.path)
        except (FileNotFoundError, NotADirectoryError):
            raise FolderGone(f"{self.path}: the folder was deleted or renamed") from None
        if number != self.number:
            raise FolderGone(f"{self.path}: another folder has taken the place of the run's own")


def _number(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


@contextmanager
def exclusive_lock(folder: Path) -> Iterator[HeldFolder]:
    """Keep other processes that ask for this lock out of the folder, until this one leaves or dies."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:  # a system without such locks
        yield HeldFolder.of(folder)
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise UserError(
            f"{folder}: another training is at work here; wait until it is done, or choose another --out"
        ) from None
    except OSError:  # a file system without such locks
        pass
    try:
        yield HeldFolder.of(folder, descriptor)
    finally:
        os.close(descriptor)
