"""What the readers of files share: the one error they raise, what a header tells, and opening a file with care."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from dragoman.errors import UserError


class MediaError(Exception):
    """A file that cannot be used. The text is the reason, without the file's name; the category is the audit's."""

    def __init__(self, reason: str, category: str = "unreadable_file") -> None:
        super().__init__(reason)
        self.category = category


@contextmanager
def named(raw: str) -> Iterator[None]:
    """A file that cannot be used, told with its name."""
    try:
        yield
    except MediaError as error:
        raise UserError(f"{raw or 'no path'}: {error}") from None


@dataclass(frozen=True, slots=True)
class Probe:
    """What the header of a file tells; what a kind does not have is 0."""

    kind: str
    height: int = 0  # pixels, as ``images.read`` gives them: after turning
    width: int = 0
    seconds: float = 0.0
    rate: int = 0  # samples a second
    channels: int = 0
    frames: int = 0  # samples of a recording, rows of a feature sequence
    features: int = 0  # columns of a feature sequence


def status(path: str) -> os.stat_result:
    """Of an ordinary file with something in it. A pipe or a device would be waited for, perhaps for ever."""
    try:
        found = os.stat(path)
        if stat.S_ISDIR(found.st_mode):
            raise MediaError("a folder, not a file")
        if not stat.S_ISREG(found.st_mode):
            raise MediaError("a pipe or a device, not a file")
        if not os.access(path, os.R_OK):
            raise PermissionError
    except FileNotFoundError:
        raise MediaError("no such file", "missing_file") from None
    except PermissionError:
        raise MediaError("no permission to read it") from None
    except OSError as error:
        raise MediaError(f"cannot be opened ({(error.strerror or str(error)).lower()})") from None
    except ValueError:  # a NUL, or half a character: no file can be called so
        raise MediaError("no such file: its name has characters that no file name can have", "missing_file") from None
    if not found.st_size:
        raise MediaError("the file is empty")
    return found


def say(error: BaseException) -> str:
    """A library's complaint in one short line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 120 else text[:119] + "…"
