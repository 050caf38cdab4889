"""Safetensors that carry their own SHA-256, and whose header is checked before anything is allocated."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from dragoman.errors import UserError
from dragoman.files.checksums import BLANK, KEY, check_seal, is_sealed, seal
from dragoman.files.reading import damaged_file, explain_error, open_regular, parse_json, warn_unverified
from dragoman.files.writing import format_size, write_run_file

LONGEST_HEADER = 16 << 20  # bytes
MISSING = "no such file; is this the folder of a finished run?"
_SPARSE = 64 << 20  # bytes: a larger file is looked at for holes


@dataclass(frozen=True, slots=True)
class TensorHeader:
    """What the header of a file of tensors says."""

    shapes: Mapping[str, tuple[int, ...]]
    metadata: Mapping[str, str]

    @property
    def elements(self) -> int:
        """Return the number of elements of all tensors."""
        return sum(_product(shape) for shape in self.shapes.values())


def write_tensors(
    path: Path,
    tensors: Mapping[str, Any],
    metadata: Mapping[str, str] | None = None,
    *,
    own: int = 0,
    previous: str | None = None,
) -> None:
    """Write tensors as safetensors, with a checksum. The options are those of ``write_run_file``."""
    from safetensors.torch import save

    data = save(dict(tensors))
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    # the library writes metadata in random order; here the same run gives the same bytes
    named = {name: value for name, value in sorted((metadata or {}).items()) if name != KEY}
    marked = {"__metadata__": {KEY: BLANK, **named}, **header}
    text = json.dumps(marked, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    chunks = seal([struct.pack("<Q", len(text)) + text, memoryview(data)[8 + length :]])
    write_run_file(path, chunks, own=own, previous=previous)


def read_tensor_header(path: Path) -> TensorHeader:
    """Read the header alone. The checksum is verified by ``read_tensor_file``, which reads everything."""
    with _opened(path) as file:
        return _read_header(path, file)[0]


def read_tensor_file(path: Path) -> tuple[TensorHeader, dict[str, Any]]:
    """Read a file of tensors and verify its checksum, or raise an error that names it."""
    from safetensors.torch import load

    with _opened(path) as file:
        header, head, size = _read_header(path, file)
        _refuse_oversize(path, file, size)
        data = head + file.read(size - len(head))
    if (problem := check_seal(data, tensors=True)) is not None:
        raise damaged_file(path, problem)
    try:
        tensors = load(data)
    except Exception as error:  # safetensors raises its own kinds for damaged files
        raise damaged_file(path, error) from None
    if not is_sealed(data, tensors=True):
        warn_unverified(path)
    return header, tensors


def _opened(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path}: {MISSING}") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({explain_error(error)})") from None


def _read_header(path: Path, file: BinaryIO) -> tuple[TensorHeader, bytes, int]:
    """Return the header, its bytes, and the size of the file."""
    size = os.fstat(file.fileno()).st_size
    start = file.read(8)
    length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
    if not 2 <= length <= min(size - 8, LONGEST_HEADER):
        raise damaged_file(path, f"its header would have {length:,} bytes, the file has {size:,}")
    text = file.read(length)
    try:
        return _parse_header(text, size - 8 - length), start + text, size
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise damaged_file(path, f"its header is not valid: {error}") from None


def _parse_header(text: bytes, size: int) -> TensorHeader:
    plain = parse_json(text)
    metadata = plain.pop("__metadata__", {})
    if not all(isinstance(item, str) for pair in metadata.items() for item in pair):
        raise ValueError("metadata that is no text")
    shapes: dict[str, tuple[int, ...]] = {}
    for name, entry in plain.items():
        shape, (begin, end) = tuple(entry["shape"]), entry["data_offsets"]
        if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)) or len(shape) > 16:
            raise ValueError(f"{name!r} has the shape {shape}")
        if not begin <= end <= size or (_product(shape) > 8 * (end - begin)):
            raise ValueError(f"{name!r} needs more bytes than the file has")
        shapes[name] = shape
    return TensorHeader(shapes, metadata)


def _refuse_oversize(path: Path, file: BinaryIO, size: int) -> None:
    """Refuse a file that does not fit into memory, or that pretends to be large."""
    blocks = getattr(os.fstat(file.fileno()), "st_blocks", None)
    if size > _SPARSE and blocks is not None and blocks * 512 < size // 16:
        raise damaged_file(path, f"of its {format_size(size)} most are holes that were never written")
    free = _available_memory()
    if free is not None and 2 * size > free:
        raise UserError(f"{path}: needs about {format_size(2 * size)} of memory, but {format_size(free)} are free")


def _available_memory() -> int | None:
    """Return the bytes of memory that can be used, where the system tells."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError):
        return None


def _product(shape: tuple[int, ...]) -> int:
    result = 1
    for number in shape:
        result *= number
    return result
