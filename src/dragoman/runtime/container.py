"""The sections of a file ``model.dragoman``: where they are, and whether they are what was written.

``program/file.py`` writes such files and describes their layout. The native library reads the
sections of the program; the others, from "digest" on, are for whoever asks a model.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from .errors import UserError

FORMAT: Final = 1
MAGIC: Final = b"DRAGOMAN"
ALIGNMENT: Final = 64
SECTIONS: Final = (
    "program", "sources", "slots", "encode", "step", "weights", "data", "strings",
    "digest", "tokenizer", "settings", "forbidden", "only", "about",
)  # fmt: skip
HEADER: Final = struct.Struct("<8siiq")  # magic, format, number of sections, size of the file
ENTRY: Final = struct.Struct("<iiqq")  # kind from 1, number within the kind, offset, size
MOST_SECTIONS: Final = 1024
DIGEST: Final = 32  # bytes of a SHA-256
REMEDY: Final = "export the run again, or copy the file again"


class Container:
    """A model file in memory whose sections are inside it and whose digest is right."""

    def __init__(self, data: np.ndarray, name: str) -> None:
        """``data`` are the bytes, uint8; ``name`` is what messages call the file."""
        self.data, self.name = data, name
        self._places = self._find_sections()
        self._check_digest()

    @classmethod
    def open(cls, path: str | Path) -> Container:
        """Map a file that anyone may have made into memory."""
        try:
            # without O_NONBLOCK, opening a FIFO waits for a writer
            descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
        except FileNotFoundError:
            raise UserError(f"{path}: no such file; `dragoman export RUN --to portable` writes one") from None
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise UserError(f"{path}: not a regular file; give a file model.dragoman")
            mapped = mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) if status.st_size else b""
        finally:
            os.close(descriptor)
        return cls(np.frombuffer(mapped, np.uint8), str(path))

    def section(self, kind: str, number: int = 0) -> memoryview | None:
        """Return the bytes of a section; None: the file has no such section."""
        place = self._places.get((SECTIONS.index(kind) + 1, number))
        return None if place is None else self.data[place[0] : place[0] + place[1]].data

    def needed(self, kind: str) -> memoryview:
        """Return the bytes of a section, or raise an error that says that it is missing."""
        found = self.section(kind)
        if found is None:
            raise self.damaged(f"it has no section {kind!r}")
        return found

    def array(self, kind: str, dtype: str) -> np.ndarray:
        """Return a section of numbers; one that is missing has none."""
        found = self.section(kind) or memoryview(b"")
        if len(found) % np.dtype(dtype).itemsize:
            raise self.damaged(f"its section {kind!r} is cut off")
        return np.frombuffer(found, dtype)

    def runs(self, kind: str) -> list[tuple[int, ...]]:
        """Return a section of sequences of token ids: their number, then the length and the ids of each."""
        numbers = self.array(kind, "<i4").tolist()
        runs: list[tuple[int, ...]] = []
        at = 1
        for _ in range(numbers[0] if numbers else 0):
            size = numbers[at] if at < len(numbers) else -1
            if not 0 <= size <= len(numbers) - at - 1:
                raise self.damaged(f"its section {kind!r} is cut off")
            runs.append(tuple(numbers[at + 1 : at + 1 + size]))
            at += 1 + size
        return runs

    def sections(self) -> list[tuple[str, bytes, int]]:
        """Return all sections but the digest: kind, bytes, and number within the kind."""
        found = ((SECTIONS[kind - 1], number) for kind, number in self._places if 0 < kind <= len(SECTIONS))
        return [(kind, bytes(self.section(kind, number) or b""), number) for kind, number in found if kind != "digest"]

    def about(self) -> dict[str, Any]:
        """Return what the file says of itself."""
        try:
            plain = json.loads(bytes(self.needed("about")))
        except (ValueError, RecursionError):
            raise self.damaged("its section 'about' is not JSON") from None
        if not isinstance(plain, dict):
            raise self.damaged("its section 'about' is no JSON object")
        return plain

    def damaged(self, what: str) -> UserError:
        """Return the error for a file that is not as it was written."""
        return UserError(f"{self.name}: the file is damaged: {what}; {REMEDY}")

    def _find_sections(self) -> Mapping[tuple[int, int], tuple[int, int]]:
        size = len(self.data)
        head = self.data[: HEADER.size].tobytes()
        if len(head) < HEADER.size or head[: len(MAGIC)] != MAGIC:
            raise UserError(f"{self.name}: this is no model file of Dragoman; give a file model.dragoman")
        _, version, count, recorded = HEADER.unpack(head)
        if version != FORMAT:
            raise UserError(f"{self.name}: has format {version}, but this version reads {FORMAT}; export the run again")
        if recorded != size:
            raise self.damaged(f"it has {size:,} bytes, and was written with {recorded:,}")
        if not 0 <= count <= MOST_SECTIONS or HEADER.size + ENTRY.size * count > size:
            raise self.damaged("its table of sections is cut off")
        places = {}
        for index in range(count):
            begin = HEADER.size + ENTRY.size * index
            kind, number, offset, length = ENTRY.unpack(self.data[begin : begin + ENTRY.size].tobytes())
            if offset < 0 or length < 0 or offset % ALIGNMENT or offset > size or length > size - offset:
                raise self.damaged("a section lies outside it")
            places[kind, number] = offset, length
        return places

    def _check_digest(self) -> None:
        place = self._places.get((SECTIONS.index("digest") + 1, 0))
        if place is None or place[1] != DIGEST:
            raise self.damaged("it carries no checksum")
        if digest_of(self.data, place[0]) != self.data[place[0] : place[0] + DIGEST].tobytes():
            raise self.damaged("its SHA-256 is not the one that was written into it")


def digest_of(data: np.ndarray, place: int) -> bytes:
    """Return the SHA-256 of a file whose own digest, at ``place``, counts as zeros."""
    digest = hashlib.sha256(data[:place].data)
    digest.update(bytes(DIGEST))
    digest.update(data[place + DIGEST :].data)
    return digest.digest()
