"""Decoded files: read when they are needed, and cached where that is allowed and fits.

What is cached is ``Modality.array``, which is always the same. Where training augments its input,
files are read again for training, and the cache serves validation only.
"""

from __future__ import annotations

import hashlib
import io
import os
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, Literal

import numpy as np

from dragoman.data.media import named
from dragoman.data.modality import Modality
from dragoman.errors import UserError
from dragoman.files import open_regular, write_run_file
from dragoman.parts import dump

CacheKind = Literal["auto", "none", "memory", "disk"]
MEMORY = 512 * 2**20  # bytes that "auto" caches


class Cache:
    """Decoded arrays of one source: in memory up to ``limit`` bytes, in ``folder``, or not kept.

    Threads may share a cache.
    """

    def __init__(self, limit: float = 0, folder: Path | None = None) -> None:
        self.limit, self.folder = limit, folder
        self._arrays: dict[str, np.ndarray] = {}
        self._free = limit
        self._lock = Lock()

    @classmethod
    def of(cls, kind: CacheKind, folder: Path | None) -> Cache:
        """Return a cache as the setting ``data.cache`` asks for it."""
        if kind == "disk" and folder is not None:
            return cls(folder=folder)
        return cls({"auto": MEMORY, "memory": float("inf")}.get(kind, 0))

    def array(self, modality: Modality, raw: str) -> np.ndarray:
        """Return the array of a file, from the cache if it is there."""
        if (cached := self._arrays.get(raw)) is not None:
            return cached
        if self.folder is not None:
            return self._from_disk(modality, raw, self.folder)
        array = modality.array(raw)
        with self._lock:
            if array.nbytes <= self._free and raw not in self._arrays:
                self._free -= array.nbytes
                self._arrays[raw] = array
        return array

    def _from_disk(self, modality: Modality, raw: str, folder: Path) -> np.ndarray:
        path = folder / f"{_fingerprint(modality, raw)}.npy"
        # not there yet, or damaged: it is made again
        with suppress(OSError, ValueError, EOFError, MemoryError, UserError), open_regular(path) as file:
            stored: np.ndarray = np.load(file, allow_pickle=False)
            return stored
        array = modality.array(raw)
        data = io.BytesIO()
        np.save(data, array, allow_pickle=False)
        # several processes may make it at once; the run's folder has the folders cache/NAME
        write_run_file(path, data.getvalue(), own=2, unique=True)
        return array

    def __getstate__(self) -> dict[str, Any]:
        """Leave the arrays behind: another process starts with an empty cache."""
        return {"limit": self.limit, "folder": self.folder}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


def _fingerprint(modality: Modality, raw: str) -> str:
    """Return a name for a file as it is now, read with these settings."""
    path = modality.file_of(raw)
    status = os.stat(path) if os.path.exists(path) else None
    version = (os.path.abspath(raw), status and (status.st_mtime_ns, status.st_size), dump(modality.config))
    return hashlib.blake2b(repr(version).encode(), digest_size=16).hexdigest()


class PendingFile:
    """One file that will be read later.

    Its ``len`` is that of its array, told by the header alone.
    """

    def __init__(self, modality: Modality, raw: str, cache: Cache | None = None) -> None:
        self.modality, self.raw, self.cache = modality, raw, cache or Cache()

    def __len__(self) -> int:
        return self._length

    @cached_property
    def _length(self) -> int:
        with named(self.raw):
            return self.modality.length(self.raw)

    def read(self) -> np.ndarray:
        """Return the array, through the cache.

        Raise a ``UserError`` for a file that cannot be used.
        """
        with named(self.raw):
            return self.cache.array(self.modality, self.raw)
