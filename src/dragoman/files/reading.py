"""Read the files of a run: regular files only, of a size that fits their kind, with a right checksum."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from dragoman.errors import Unverified, UserError
from dragoman.files.checksums import KEY, check_seal, is_sealed

SMALL = 4 << 20  # bytes: settings and counters
LARGE = 64 << 20  # bytes: vocabularies, audits, reports
DEEPEST = 64  # brackets inside brackets
MOST_VALUES = 4_000_000  # of one JSON file
MOST_BRACKETS = 500_000

_KINDS = {
    stat.S_IFIFO: "a pipe (FIFO)",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
    stat.S_IFDIR: "a folder",
}
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET = re.compile(rb"[][{}]")


def open_regular(path: str | Path, limit: int | None = None, *, buffering: int = -1) -> BinaryIO:
    """Open a regular file for reading, without waiting for anything.

    Anything else (a pipe, a device, a socket, a folder) and a file of more than ``limit`` bytes
    raise a ``UserError``. A file that is not there raises ``FileNotFoundError``.
    """
    # without O_NONBLOCK, opening a FIFO waits for a writer
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            kind = _KINDS.get(stat.S_IFMT(status.st_mode), "something else")
            raise UserError(f"{path}: this is {kind}, not a regular file; give the path of a file")
        if limit is not None and status.st_size > limit:
            raise UserError(
                f"{path}: has {status.st_size:,} bytes, but such a file has at most {limit:,}; it was not written by "
                "Dragoman, or it is damaged"
            )
        return os.fdopen(descriptor, "rb", buffering)
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path, limit: int, missing: str = "no such file; is this the folder of a run?") -> bytes:
    """Return the bytes of a file of a run, or raise an error that names it."""
    try:
        with open_regular(path, limit) as file:
            return file.read(limit + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path}: {missing}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({explain_error(error)})") from None
    except ValueError as error:  # a NUL character in the name
        raise UserError(f"{str(path)!r}: cannot be read ({error})") from None


def explain_error(error: OSError) -> str:
    """Return the reason of an error in words."""
    if error.errno == errno.ELOOP:
        return "a symbolic link, which is not followed here"
    return error.strerror or str(error)


def read_json(
    path: Path,
    missing: str = "no such file; is this the folder of a run?",
    advice: str = "train again, or restore the file",
    limit: int = SMALL,
    *,
    warns: bool = False,
) -> dict[str, Any]:
    """Return the JSON object of a file of a run, or raise an error that names the file.

    Its checksum is verified and left out. ``missing``: what the error says where there is no such
    file; ``advice``: where it is damaged; ``limit``: the most bytes it may have; ``warns``: say so if it
    carries no checksum.
    """
    data = read_regular(path, limit, missing)
    if (problem := check_seal(data)) is not None:
        raise damaged_file(path, problem, advice)
    try:
        value = parse_json(data)
    except (ValueError, RecursionError) as error:
        raise damaged_file(path, f"not valid JSON: {error}", advice) from None
    if not isinstance(value, dict):
        raise damaged_file(path, "not a JSON object", advice)
    if warns and not is_sealed(data):
        warn_unverified(path)
    value.pop(KEY, None)
    return value


def parse_json(data: bytes, parse_constant: Callable[[str], Any] | None = None, most_values: int = MOST_VALUES) -> Any:
    """Parse JSON that may come from anyone: its depth and its number of values are bounded first.

    ``parse_constant`` is called for NaN and infinities, as in ``json.loads``. Raises ValueError.
    """
    if data.count(b",") > most_values and _STRING.sub(b"", data).count(b",") > most_values:
        raise ValueError(f"more than {most_values:,} values")
    if data.count(b"[") + data.count(b"{") > DEEPEST:
        depth = 0
        for number, bracket in enumerate(_BRACKET.finditer(_STRING.sub(b"", data))):
            depth += 1 if bracket[0] in b"[{" else -1
            if depth > DEEPEST:
                raise ValueError(f"more than {DEEPEST} brackets inside each other")
            if number > MOST_BRACKETS:
                raise ValueError(f"more than {MOST_BRACKETS:,} brackets")
    return json.loads(data.decode("utf-8"), parse_constant=parse_constant)


def damaged_file(path: Path, problem: object, advice: str = "train again, or restore the file") -> UserError:
    """Return the error for a file of a run that does not hold what was written to it."""
    return UserError(f"{path}: damaged ({problem}); {advice}")


def warn_unverified(path: Path) -> None:
    """Say, once for each folder and process, that its files carry no checksums."""
    folder = str(path.parent)
    if folder not in _WARNED:
        _WARNED.add(folder)
        warnings.warn(
            f"{folder}: {path.name} carries no checksum, because an earlier version wrote it or somebody edited it; "
            "damage to it cannot be noticed",
            Unverified,
            stacklevel=2,
        )


_WARNED: set[str] = set()
