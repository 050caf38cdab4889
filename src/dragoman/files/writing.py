"""Write files inside an opened folder: in one move, forced to disk, never through a symbolic link.

Where the system can, every step is relative to the descriptor of the folder, so nobody can exchange
the folder between two steps. Elsewhere (Windows) paths are checked for links instead.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman.errors import UserError
from dragoman.files.checksums import BLANK, KEY, seal

_RELATIVE = os.open in os.supports_dir_fd and os.rename in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
_FULL = (errno.ENOSPC, errno.EDQUOT) if hasattr(errno, "EDQUOT") else (errno.ENOSPC,)
_NOT_A_FOLDER = (errno.ELOOP, errno.ENOTDIR)

Chunk = bytes | memoryview


class FolderGone(UserError):
    """The folder of a run was deleted or renamed while the run was writing into it."""


@dataclass(frozen=True, slots=True)
class _Folder:
    """An open folder. ``descriptor`` is None where the system has no relative calls."""

    path: Path
    descriptor: int | None

    def name(self, name: str) -> str:
        """Return what the calls of ``os`` name a file of this folder by."""
        if self.descriptor is not None:
            return name
        path = self.path / name
        if path.is_symlink():
            raise _refusal(path, "a symbolic link")
        return str(path)

    def open(self, name: str, flags: int) -> int:
        """Open a regular file of this folder; a link, a device or a pipe is refused."""
        flags |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
        try:
            descriptor = os.open(self.name(name), flags, 0o666, dir_fd=self.descriptor)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise _refusal(self.path / name, "a symbolic link") from None
            if error.errno == errno.ENXIO:
                raise _refusal(self.path / name, "a pipe (FIFO)") from None
            raise
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise _refusal(self.path / name, "no regular file")
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
def _opened(folder: Path, own: int = 0, *, create: bool = False) -> Iterator[_Folder]:
    """Open a folder. The last ``own`` parts of its path must be no links; ``create`` makes these."""
    base, names = folder, list[str]()
    for _ in range(own):
        base, names = base.parent, [base.name, *names]
    if not _RELATIVE:
        path = base
        for name in names:
            path = path / name
            if path.is_symlink():
                raise _refusal(path, "a symbolic link")
            if create:
                path.mkdir(exist_ok=True)
        yield _Folder(folder, None)
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
                    raise _refusal(path, "a symbolic link or a file, where a folder of the run should be") from None
                raise
            os.close(descriptor)
            descriptor = inner
        yield _Folder(folder, descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write a file that a person asked for: beside ``path``, forced to disk, then renamed over it."""
    refuse_folder(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_run_file(path, data)


def write_run_file(
    path: Path, data: bytes | str | Sequence[Chunk], *, own: int = 0, previous: str | None = None, unique: bool = False
) -> None:
    """Write a file of a run in one move. Its folder has to be there.

    ``own``: how many of the folders above the file belong to the run; they are made where they are
    missing, and must be no links. ``previous``: the name that the old version is kept under.
    ``unique``: several processes may write the file at once.
    """
    refuse_folder(path)
    chunks: Sequence[Chunk] = [data.encode()] if isinstance(data, str) else [data] if isinstance(data, bytes) else data
    temporary = f".{path.name}.{os.getpid()}.partial" if unique else f".{path.name}.partial"
    with _named(path, writes=True), _opened(path.parent, own, create=True) as folder:
        folder.delete(temporary)  # left by an interrupted write, or a link that somebody put there
        descriptor = folder.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            try:
                for chunk in chunks:
                    _write_all(descriptor, chunk)
                os.fsync(descriptor)
            except OSError as error:
                if error.errno in _FULL:
                    raise _disk_full(path, sum(map(len, chunks)), descriptor) from None
                raise
            finally:
                os.close(descriptor)
            if previous is not None:
                _keep(folder, path.name, previous)
            folder.rename(temporary, path.name)
        except BaseException:
            with suppress(OSError):
                folder.delete(temporary)
            raise
        folder.sync()


def _keep(folder: _Folder, name: str, previous: str) -> None:
    """Give the present version of a file a second name, so that it outlives the next one."""
    temporary = f".{previous}.partial"
    folder.delete(temporary)
    try:
        folder.link(name, temporary)
    except FileNotFoundError:
        return
    except OSError:  # a file system without hard links: for a moment, the old version has its new name only
        with suppress(FileNotFoundError):
            folder.rename(name, previous)
        return
    folder.rename(temporary, previous)
    folder.delete(temporary)  # rename does nothing where both names are the same file already


def _write_all(descriptor: int, chunk: Chunk) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON; an object gets its checksum as the first key."""
    if isinstance(value, dict):
        value = {KEY: BLANK, **{key: inner for key, inner in value.items() if key != KEY}}
    text = (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()
    write_run_file(path, seal([text]) if isinstance(value, dict) else text)


def append_line(path: Path, line: str) -> None:
    """Add a line to a file of a run."""
    data = f"{line}\n".encode()
    with _named(path), _opened(path.parent) as folder:
        descriptor = folder.open(path.name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            _write_all(descriptor, data)
        except OSError as error:
            if error.errno in _FULL:
                raise _disk_full(path, len(data), descriptor) from None
            raise
        finally:
            os.close(descriptor)


def truncate_file(path: Path, size: int) -> None:
    """Cut a file of a run to at most ``size`` bytes, if it is there."""
    with suppress(FileNotFoundError), _named(path), _opened(path.parent) as folder:
        descriptor = folder.open(path.name, os.O_RDWR)
        try:
            if os.fstat(descriptor).st_size > size:
                os.ftruncate(descriptor, size)
        finally:
            os.close(descriptor)


def file_size(path: Path) -> int:
    """Return the size of a file; 0 where there is none."""
    try:
        return os.stat(path, follow_symlinks=False).st_size
    except FileNotFoundError:
        return 0


def delete_files(folder: Path, names: Iterable[str], *, own: int = 0) -> None:
    """Delete files of a run by their names. ``own`` is as for ``write_run_file``."""
    try:
        with _named(folder), _opened(folder, own) as opened:
            for name in names:
                opened.delete(name)
    except FileNotFoundError:
        return


def refuse_folder(path: Path) -> None:
    """Raise an error where a file is to be written, but ``path`` is a folder."""
    if not path.name or path.is_dir():
        raise UserError(f"{path}: this is a folder; give the name of a file to write")


@contextmanager
def _named(path: Path, *, writes: bool = False) -> Iterator[None]:
    """Let errors name the whole path; calls relative to a folder know the last part only.

    ``writes``: the file is made here, so only its folder can be missing.
    """
    try:
        yield
    except OSError as error:
        if writes and isinstance(error, FileNotFoundError):
            raise FolderGone(f"{path.parent}: the folder was deleted or renamed") from None
        raise type(error)(error.errno, error.strerror, str(path)) from None


def _refusal(path: Path, what: str) -> UserError:
    return UserError(f"{path}: this is {what}; nothing is written through it; remove it, or choose another folder")


def _disk_full(path: Path, needed: int, descriptor: int) -> UserError:
    free = ""
    if hasattr(os, "fstatvfs"):
        status = os.fstatvfs(descriptor)
        size = status.f_bavail * status.f_frsize + os.fstat(descriptor).st_size
        free = f", {format_size(size)} are free, so {format_size(max(0, needed - size))} are missing"
    return UserError(
        f"{path}: the disk is full ({format_size(needed)} are needed{free}); the last version of the file is "
        "untouched; free some space and give the same command again"
    )


def format_size(size: int) -> str:
    """Return a number of bytes in the unit that reads best."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"
