"""Sources that are files, whatever their kind: recognising, opening and refusing them.

What knows one kind of file is its modality, found by its kind: ``parts.part("modality", kind)``.
"""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dragoman.errors import UserError
from dragoman.files import open_regular

if TYPE_CHECKING:
    from dragoman.data.modality import Modality

_HEAD = 16  # bytes at the beginning of a file that tell its kind
_REMOTE = re.compile(r"(?!file:)[a-z][a-z0-9+.-]+://", re.IGNORECASE)


class MediaError(Exception):
    """A file that cannot be used.

    The text is the reason, without the file's name; the category is the audit's.
    """

    def __init__(self, reason: str, category: str = "unreadable_file") -> None:
        super().__init__(reason)
        self.category = category


@contextmanager
def named(raw: str) -> Iterator[None]:
    """Report a file that cannot be used with its name."""
    try:
        yield
    except MediaError as error:
        raise UserError(f"{raw or 'no path'}: {error}") from None


@dataclass(frozen=True, slots=True)
class Probe:
    """What the header of a file tells; what a kind does not have is 0."""

    height: int = 0  # pixels, after turning the picture as it says
    width: int = 0
    seconds: float = 0.0
    rate: int = 0  # samples a second
    channels: int = 0
    frames: int = 0  # samples of a recording, rows of a feature sequence
    features: int = 0  # columns of a feature sequence


def file_kinds() -> dict[str, type[Modality]]:
    """Return the modalities whose raw values are files, by kind."""
    from dragoman.parts import kinds, part  # with pydantic, which --help does without

    return {kind: modality for kind in kinds("modality") if (modality := part("modality", kind)).is_file}


def probe(raw: str, kind: str) -> Probe:
    """Read the header of a file."""
    return file_kinds()[kind].probe(raw)


def examine(raw: str, kind: str) -> Probe:
    """Read the header of a file, after checking that the file is whole."""
    return file_kinds()[kind].examine(raw)


def suffix_kind(path: str) -> str | None:
    """Return the kind of file that a path's suffix names, or None."""
    return _suffix_kind(path, file_kinds())


def _suffix_kind(path: str, modalities: dict[str, type[Modality]]) -> str | None:
    for kind, modality in modalities.items():
        if os.path.splitext(modality.file_of(path))[1].lower() in modality.suffixes:
            return kind
    return None


def content_kind(path: str) -> str | None:
    """Return the kind of file that its first bytes show, whatever its name, or None."""
    try:
        with open_regular(path) as file:
            return head_kind(file.read(_HEAD))
    except (OSError, ValueError, UserError):
        return None


def head_kind(head: bytes) -> str | None:
    """Return the kind of file that begins with these bytes, or None."""
    for kind, modality in file_kinds().items():
        if any(re.match(mark, head, re.DOTALL) for mark in modality.marks):
            return kind
    return None


def file_of(path: str) -> str:
    """Return the file itself, where the path is that of one entry among many in a file."""
    kind = suffix_kind(path)
    return path if kind is None else file_kinds()[kind].file_of(path)


def recognise(values: Sequence[str]) -> str | None:
    """Return the kind of file that more than half of the values name, or None for texts."""
    modalities = file_kinds()
    suffixes = {suffix: kind for kind, modality in modalities.items() for suffix in modality.suffixes}
    counts: Counter[str | None] = Counter()
    for value in values:
        kind = suffixes.get(os.path.splitext(value)[1].lower())
        counts[kind or ("#" in value and _suffix_kind(value, modalities)) or None] += 1
    kind, count = counts.most_common(1)[0] if counts else (None, 0)
    return kind if count * 2 > len(values) else None


def resolve(value: str, folder: str) -> str:
    """Return the path that a value means; a relative one is relative to ``folder``."""
    if _REMOTE.match(value):
        raise MediaError("an address on a network, not a file; fetch it first and give its path", "remote_file")
    # Without "..", so that a file has one name from wherever it is named: this is how copies are found.
    return os.path.normpath(os.path.join(folder, value))


def check_file(path: str) -> os.stat_result:
    """Return the status of an ordinary file that is not empty.

    A pipe or a device could block for ever.
    """
    try:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            raise MediaError("a folder, not a file")
        if not stat.S_ISREG(status.st_mode):
            raise MediaError("a pipe or a device, not a file")
        if not os.access(path, os.R_OK):
            raise PermissionError
    except FileNotFoundError:
        raise MediaError("no such file", "missing_file") from None
    except PermissionError:
        raise MediaError("no permission to read it") from None
    except OSError as error:
        raise MediaError(f"cannot be opened ({(error.strerror or str(error)).lower()})") from None
    except ValueError:  # a NUL, or half a character: no file can have such a name
        raise MediaError("no such file: its name has characters that no file name can have", "missing_file") from None
    if not status.st_size:
        raise MediaError("the file is empty")
    return status


def short_reason(error: BaseException) -> str:
    """Return the message of a library's error in one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 120 else text[:119] + "…"
