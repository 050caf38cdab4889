"""Sources that are files: read when a batch needs them, and kept where that is allowed and fits.

What is kept is ``Modality.tensor``, which is the same every time. Where training changes its input at random, the file
is read anew for training, and only validation is served from what is kept.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from dragoman.contracts import Modality
from dragoman.data.media import named
from dragoman.parts import dump
from dragoman.types import Padded

CacheKind = Literal["auto", "none", "memory", "disk"]
MEMORY = 512 * 2**20  # bytes that are kept unasked
LOOKED_AT = 8  # files that an estimate is made from

Draw = tuple[int, int]  # (seed, epoch): with the row's place, what random changes depend on


class Cache:
    """Decoded tensors of one source, kept in memory up to ``limit`` bytes, or as files in ``folder``, or not at all."""

    def __init__(self, limit: float = 0, folder: Path | None = None) -> None:
        self.limit, self.folder = limit, folder
        self.kept: dict[str, Tensor] = {}
        self.free = limit

    @classmethod
    def of(cls, kind: CacheKind, folder: Path | None) -> Cache:
        if kind == "disk" and folder is not None:
            return cls(folder=folder)
        return cls({"auto": MEMORY, "memory": float("inf")}.get(kind, 0))

    def tensor(self, modality: Modality, raw: str) -> Tensor:
        if raw in self.kept:
            return self.kept[raw]
        if self.folder is not None:
            return self._on_disk(modality, raw, self.folder)
        tensor = modality.tensor(raw)
        size = tensor.numel() * tensor.element_size()
        if size <= self.free:
            self.free -= size
            self.kept[raw] = tensor
        return tensor

    def _on_disk(self, modality: Modality, raw: str, folder: Path) -> Tensor:
        path = folder / f"{_fingerprint(modality, raw)}.npy"
        with suppress(OSError, ValueError, EOFError):  # not there yet, or damaged: made anew
            return torch.from_numpy(np.load(path, allow_pickle=False))
        tensor = modality.tensor(raw)
        folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.partial")  # several processes may make it at once
        with open(partial, "wb") as file:
            np.save(file, tensor.numpy(), allow_pickle=False)
        os.replace(partial, path)
        return tensor

    def __getstate__(self) -> dict[str, object]:
        """Another process starts with nothing in memory."""
        return {"limit": self.limit, "folder": self.folder, "kept": {}, "free": self.limit}


def _fingerprint(modality: Modality, raw: str) -> str:
    """Of a file as it is now, and of how it is read."""
    path = raw if os.path.exists(raw) else raw.rpartition("#")[0]  # one of many in a store
    found = os.stat(path) if path and os.path.exists(path) else None
    settings: Any = getattr(modality, "config", None)
    told = (os.path.abspath(raw), found and (found.st_mtime_ns, found.st_size), settings and dump(settings))
    return hashlib.blake2b(repr(told).encode(), digest_size=16).hexdigest()


class FileColumn:
    """One source of many rows."""

    def __init__(self, modality: Modality, raws: Sequence[str], cache: Cache | None = None) -> None:
        self.modality, self.raws, self.cache = modality, list(raws), cache or Cache()

    @cached_property
    def lengths(self) -> list[int]:
        return [len(Pending(self.modality, raw)) for raw in self.raws]

    def drawn_lengths(self, draw: Draw) -> Sequence[int]:
        """Of the files as they are: how long a changed one becomes is known when it has been read."""
        return self.lengths

    def padded(self, rows: Sequence[int], draw: Draw | None = None) -> Padded:
        return self.modality.collate([self._tensor(row, draw) for row in rows])

    def _tensor(self, row: int, draw: Draw | None) -> Tensor:
        raw = self.raws[row]
        with named(raw):
            if draw is None or not self.modality.varies:
                return self.cache.tensor(self.modality, raw)
            return self.modality.augmented(raw, np.random.default_rng([*draw, row]))

    @property
    def stays_in_memory(self) -> bool:
        """Will training, after its first epoch, be served from memory? Estimated from some of the files."""
        if self.modality.varies or not self.cache.limit:
            return False
        chosen = range(0, len(self.raws), max(1, len(self.raws) // LOOKED_AT))
        tensors = [self._tensor(row, None) for row in chosen]
        mean = sum(tensor.numel() * tensor.element_size() for tensor in tensors) / len(tensors)
        return mean * len(self.raws) <= self.cache.limit


class Pending:
    """One file that will be read when its turn comes; as long as the tensor it will be."""

    def __init__(self, modality: Modality, raw: str) -> None:
        self.modality, self.raw = modality, raw

    def __len__(self) -> int:
        return self._length

    @cached_property
    def _length(self) -> int:
        with named(self.raw):
            return self.modality.length(self.raw)

    def read(self) -> Tensor:
        with named(self.raw):
            return self.modality.tensor(self.raw)
