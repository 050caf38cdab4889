"""A folder that was opened, and whose files are named relative to it, never through a symbolic link.

Where the system can, every step is relative to the descriptor of the folder, so nobody can exchange
the folder between two steps. Elsewhere (Windows) paths are checked for links instead.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dragoman.errors import UserError

_NOT_A_FOLDER = (errno.ELOOP, errno.ENOTDIR)


class FolderGone(UserError):
    """The folder of a run was deleted or renamed while the run was writing into it."""


def has_relative_calls() -> bool:
    """Return whether this system opens and renames files relative to the descriptor of a folder."""
    return {os.open, os.rename} <= os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")


_RELATIVE = has_relative_calls()


def is_link(path: Path) -> bool:
    """Return whether this is a symbolic link, or what Windows calls a junction."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    junction = getattr(stat, "IO_REPARSE_TAG_MOUNT_POINT", None)
    return stat.S_ISLNK(status.st_mode) or (
        junction is not None and getattr(status, "st_reparse_tag", None) == junction
    )


@dataclass(frozen=True, slots=True)
class OpenFolder:
    """An open folder. ``descriptor`` is None where the system has no relative calls."""

    path: Path
    descriptor: int | None

    def name(self, name: str) -> str:
        """Return what the calls of ``os`` name a file of this folder by."""
        if self.descriptor is not None:
            return name
        if is_link(self.path / name):
            raise refusal(self.path / name, "a symbolic link")
        return str(self.path / name)

    def open(self, name: str, flags: int) -> int:
        """Open a regular file of this folder; a link, a device or a pipe is refused."""
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        try:
            descriptor = os.open(self.name(name), flags, 0o666, dir_fd=self.descriptor)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise refusal(self.path / name, "a symbolic link") from None
            if error.errno == errno.ENXIO:
                raise refusal(self.path / name, "a pipe (FIFO)") from None
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise refusal(self.path / name, "no regular file")
        return descriptor

    def rename(self, old: str, new: str) -> None:
        if self.descriptor is None:
            os.replace(self.path / old, self.path / new)
        else:
            os.rename(old, new, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor)

    def link(self, old: str, new: str) -> None:
        if self.descriptor is None:
            os.link(self.path / old, self.path / new)
        else:
            os.link(old, new, src_dir_fd=self.descriptor, dst_dir_fd=self.descriptor, follow_symlinks=False)

    def delete(self, name: str) -> None:
        """Delete a file, or the link of this name itself, if there is one."""
        with suppress(FileNotFoundError):
            if self.descriptor is None:
                os.unlink(self.path / name)
            else:
                os.unlink(name, dir_fd=self.descriptor)

    def sync(self) -> None:
        """Force the names in this folder to disk."""
        if self.descriptor is not None:
            try:
                os.fsync(self.descriptor)
            except OSError as error:
                if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot
                    raise


@contextmanager
def opened(folder: Path, own: int = 0, *, create: bool = False) -> Iterator[OpenFolder]:
    """Open a folder. The last ``own`` parts of its path must be no links; ``create`` makes these."""
    base, names = folder, list[str]()
    for _ in range(own):
        base, names = base.parent, [base.name, *names]
    if not _RELATIVE:
        path = base
        for name in names:
            path = path / name
            if is_link(path):
                raise refusal(path, "a symbolic link")
            if create:
                path.mkdir(exist_ok=True)
        yield OpenFolder(folder, None)
        return
    flags = os.O_RDONLY | os.O_DIRECTORY
    try:
        descriptor = os.open(base, flags)
    except FileNotFoundError:
        raise FolderGone(f"{base}: the folder is not there; it was deleted or renamed") from None
    try:
        path = base
        for name in names:
            path = path / name
            if create:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=descriptor)
            try:
                inner = os.open(name, flags | os.O_NOFOLLOW, dir_fd=descriptor)
            except OSError as error:
                if error.errno in _NOT_A_FOLDER:
                    raise refusal(path, "a symbolic link or a file, where a folder of the run should be") from None
                raise
            os.close(descriptor)
            descriptor = inner
        yield OpenFolder(folder, descriptor)
    finally:
        os.close(descriptor)


def refusal(path: Path, what: str) -> UserError:
    """Return the error for something in a run folder that nothing is written through."""
    return UserError(f"{path}: this is {what}; nothing is written through it; remove it, or choose another folder")
