"""Sources that are files: pictures, recordings, feature sequences. Each reader raises ``MediaError`` and nothing else.

A raw value is a path. Feature sequences may also stand many in one array: ``store.npy#100:250`` is the rows 100 to 249
of a (rows, D) array, ``store.npy#12`` the entry 12 of a (N, T, D) one; both count from 0.

``probe`` reads a header and is cheap. ``examine`` is for the audit: it also finds what a header cannot tell, a file cut
off or numbers that are none, without decoding pictures. The libraries are imported when a file is first read.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Sequence
from types import ModuleType

from dragoman.data.media.files import MediaError, Probe, named

__all__ = [
    "KINDS", "SUFFIXES", "MediaError", "Probe", "content_kind", "examine", "file_of", "named", "probe", "recognise",
    "resolve", "suffix_kind",
]  # fmt: skip

KINDS = ("image", "speech", "features")
SUFFIXES = {
    ".png": "image", ".jpg": "image", ".jpeg": "image", ".webp": "image",
    ".wav": "speech", ".flac": "speech", ".ogg": "speech",
    ".npy": "features",
}  # fmt: skip
_MARKS = {
    b"\x89PNG": "image", b"\xff\xd8\xff": "image", b"RIFF....WEBP": "image",
    b"RIFF....WAVE": "speech", b"RIFX....WAVE": "speech", b"RF64....WAVE": "speech",
    b"fLaC": "speech", b"OggS": "speech",
    b"\x93NUMPY": "features",
}  # fmt: skip
_PLACE = re.compile(r"(?<=\.npy)#[^/]*$", re.IGNORECASE)  # in a store of many sequences
_REMOTE = re.compile(r"(?!file:)[a-z][a-z0-9+.-]+://", re.IGNORECASE)


def file_of(path: str) -> str:
    """The file itself, where the path is of one sequence among many in it."""
    return _PLACE.sub("", path)


def suffix_kind(path: str) -> str | None:
    """The kind a file's name speaks of."""
    return SUFFIXES.get(os.path.splitext(file_of(path))[1].lower())


def content_kind(path: str) -> str | None:
    """The kind that the first bytes of a file speak of, whatever its name."""
    try:
        with open(path, "rb") as file:
            head = file.read(16)
    except (OSError, ValueError):
        return None
    found = (kind for mark, kind in _MARKS.items() if re.match(mark, head, re.DOTALL))
    return next(found, None)


def recognise(values: Sequence[str]) -> str | None:
    """The kind of a column of paths, or None for texts: what the names of more than half of them say."""
    counts = Counter(suffix_kind(value) for value in values)
    kind, count = counts.most_common(1)[0] if counts else (None, 0)
    return kind if count * 2 > len(values) else None


def resolve(value: str, folder: str) -> str:
    """The path that a value means; a relative one is relative to ``folder``."""
    if _REMOTE.match(value):
        raise MediaError("an address on a network, not a file; fetch it first and give its path", "remote_file")
    # Without "..", so that a file has one name from wherever it is named: this is how copies are found.
    return os.path.normpath(os.path.join(folder, value))


def probe(path: str, kind: str) -> Probe:
    """What the header tells."""
    return _reader(kind).probe(path)


def examine(path: str, kind: str) -> Probe:
    """As ``probe``, after looking whether the file is whole."""
    return _reader(kind).examine(path)


def _reader(kind: str) -> ModuleType:
    if kind == "image":
        from dragoman.data.media import images

        return images
    if kind == "speech":
        from dragoman.data.media import audio

        return audio
    if kind == "features":
        from dragoman.data.media import features

        return features
    raise ValueError(f"{kind!r} is none of {', '.join(KINDS)}")
