"""Write files inside an opened folder: in one move, forced to disk, never through a symbolic link."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from dragoman.errors import UserError
from dragoman.files.checksums import BLANK, KEY, seal
from dragoman.files.folders import FolderGone, OpenFolder, opened

_FULL = (errno.ENOSPC, errno.EDQUOT) if hasattr(errno, "EDQUOT") else (errno.ENOSPC,)

Chunk = bytes | memoryview


class DiskFull(UserError):
    """There is no space left for a file."""


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
    with _named(path, writes=True), opened(path.parent, own, create=True) as folder:
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


def _keep(folder: OpenFolder, name: str, previous: str) -> None:
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


def write_json(path: Path, value: Any, *, own: int = 0) -> None:
    """Write a value as indented JSON; an object gets its checksum as the first key.

    ``own`` is as for ``write_run_file``.
    """
    if isinstance(value, dict):
        value = {KEY: BLANK, **{key: inner for key, inner in value.items() if key != KEY}}
    text = (json.dumps(value, ensure_ascii=False, indent=2) + "\n").encode()
    write_run_file(path, seal([text]) if isinstance(value, dict) else text, own=own)


def append_line(path: Path, line: str) -> None:
    """Add a line to a file of a run."""
    append_bytes(path, f"{line}\n".encode())


def append_bytes(path: Path, data: Chunk) -> None:
    """Add bytes at the end of a file of a run. They are not forced to disk."""
    with _named(path), opened(path.parent) as folder:
        descriptor = folder.open(path.name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            _write_all(descriptor, data)
        except OSError as error:
            if error.errno in _FULL:
                raise _disk_full(path, len(data), descriptor) from None
            raise
        finally:
            os.close(descriptor)


def create_file(path: Path, *, own: int = 0) -> BinaryIO:
    """Open a new file of a run, for what is written bit by bit. An old file, or a link, of this name is deleted.

    ``own`` is as for ``write_run_file``.
    """
    with _named(path, writes=True), opened(path.parent, own, create=True) as folder:
        folder.delete(path.name)
        return os.fdopen(folder.open(path.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")


def rename_file(path: Path, name: str) -> None:
    """Give a file of a run another name in its folder; a file that has this name is replaced."""
    with _named(path), opened(path.parent) as folder:
        folder.rename(path.name, name)
        folder.sync()


def force_file(path: Path) -> None:
    """Force a file of a run to disk."""
    with _named(path), opened(path.parent) as folder:
        descriptor = folder.open(path.name, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def truncate_file(path: Path, size: int) -> None:
    """Cut a file of a run to at most ``size`` bytes, if it is there."""
    with suppress(FileNotFoundError), _named(path), opened(path.parent) as folder:
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
        with _named(folder), opened(folder, own) as place:
            for name in names:
                place.delete(name)
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


def _disk_full(path: Path, needed: int, descriptor: int) -> DiskFull:
    free = ""
    if hasattr(os, "fstatvfs"):
        status = os.fstatvfs(descriptor)
        size = status.f_bavail * status.f_frsize + os.fstat(descriptor).st_size
        free = f", {format_size(size)} are free, so {format_size(max(0, needed - size))} are missing"
    return DiskFull(
        f"{path}: the disk is full ({format_size(needed)} are needed{free}); the last version of the file is "
        "untouched; free some space and give the same command again"
    )


def format_size(size: int) -> str:
    """Return a number of bytes in the unit that reads best."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"
