"""Feature sequences in ``.npy`` files: one (T, D) array, or a store of many sequences.

``store.npy#100:250`` is the rows 100 to 249 of a (rows, D) array, ``store.npy#12`` the entry 12 of
a (N, T, D) one; both count from 0. Files are mapped, not read, so a store may be larger than
memory. Arrays of Python objects are refused: unpickling runs code.
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from dragoman.data.media import MediaError, Probe, check_file, short_reason

MOST_VALUES = 1 << 28  # of one sequence; 1 GB as float32
_CHUNK = 1 << 20  # values checked at once
_PLACE = re.compile(r"(.*\.npy)#([^/]*)", re.IGNORECASE | re.DOTALL)
_ROWS = re.compile(r"([0-9]{1,15})(?::([0-9]{1,15}))?")


def file_of(path: str) -> str:
    """Return the store, where the path is that of one sequence in it."""
    return place[1] if (place := _PLACE.fullmatch(path)) else path


def read(path: str) -> np.ndarray:
    """Return (T, D) float32; an array of one axis becomes (T, 1)."""
    sequence = _sequence(path)
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, which is refused
        values = np.array(sequence, dtype=np.float32, order="C")  # a copy that may be changed
    _check_finite(values, 0)
    return values


def probe(path: str) -> Probe:
    """Read the header."""
    frames, features = _sequence(path).shape
    return Probe(frames=frames, features=features)


def examine(path: str) -> Probe:
    """Check every value, a block at a time."""
    sequence = _sequence(path)
    frames, features = sequence.shape
    step = max(1, _CHUNK // features)
    for first in range(0, frames, step):
        with np.errstate(over="ignore"):
            _check_finite(np.asarray(sequence[first : first + step], dtype=np.float32), first)
    return Probe(frames=frames, features=features)


def _check_finite(values: np.ndarray, first: int) -> None:
    finite = np.isfinite(values)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        bad = finite.size - int(np.count_nonzero(finite))
        raise MediaError(
            f"{bad:,} value{'s are' if bad > 1 else ' is'} not finite, the first in row {first + row}, column {column} "
            f"({values[row, column]})",
            "not_finite",
        )


def _sequence(path: str) -> np.ndarray:
    """Map a sequence (T, D), which is not empty."""
    if place := _PLACE.fullmatch(path):
        status = check_file(place[1])
        store = _store(place[1], status.st_mtime_ns, status.st_size)
        array = _entry(store, place[2])
    else:
        check_file(path)
        array = _mapped(path)
    if array.ndim == 1:
        array = array[:, None]  # (T, 1)
    if array.ndim != 2:
        more = "; one entry of it is FILE#NUMBER" if array.ndim == 3 else ""
        raise MediaError(f"an array of {array.ndim} axes {array.shape}, not (T, D){more}", "wrong_shape")
    if not array.size:
        raise MediaError(f"a sequence of {array.shape[0]} rows and {array.shape[1]} columns is empty", "wrong_shape")
    if array.size > MOST_VALUES:
        raise MediaError(
            f"a sequence of {array.shape[0]:,} × {array.shape[1]:,} values, over the limit of {MOST_VALUES:,}",
            "too_large",
        )
    return array


def _entry(store: np.ndarray, place: str) -> np.ndarray:
    """Return the rows FIRST to LAST, the last not included, or the entry NUMBER."""
    if (numbers := _ROWS.fullmatch(place)) is None:
        raise MediaError(
            f"#{place} is no place in a store; write #FIRST:LAST, counted from 0, the last not included", "wrong_place"
        )
    first, last = int(numbers[1]), numbers[2]
    if last is None:
        if store.ndim != 3:
            raise MediaError(
                f"#{place} names one entry, but the store has shape {store.shape}; write #FIRST:LAST", "wrong_place"
            )
        if first >= len(store):
            raise MediaError(
                f"#{place} is beyond the end of the store, which has {len(store):,} entries", "wrong_place"
            )
        entry: np.ndarray = store[first]
        return entry
    if store.ndim > 2:
        raise MediaError(
            f"#{place} names rows, but the store has shape {store.shape}; write #NUMBER for one entry", "wrong_place"
        )
    if first >= int(last):
        raise MediaError(f"#{place} has no rows: the last is not included", "wrong_place")
    if int(last) > len(store):
        raise MediaError(f"#{place} is beyond the end of the store, which has {len(store):,} rows", "wrong_place")
    return store[first : int(last)]


@lru_cache(maxsize=16)
def _store(path: str, changed: int, size: int) -> np.ndarray:
    """Map a store, once for each process and version of the file."""
    return _mapped(path)


def _mapped(path: str) -> np.ndarray:
    try:
        array = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # numpy raises many kinds of errors for a damaged header
        reason = short_reason(error)
        if "mmap length" in reason:
            raise MediaError("truncated: the file is shorter than its header says", "truncated_file") from None
        if "Python objects" in reason:
            raise MediaError("an array of Python objects, which are not read: unpickling can run any code") from None
        if "magic string" in reason:
            raise MediaError("not a .npy file") from None
        raise MediaError(f"not a readable .npy file ({reason})") from None
    if array.dtype.kind not in "biuf":
        raise MediaError(f"values of type {array.dtype}, not numbers", "wrong_shape")
    if not array.ndim:
        raise MediaError("a single number, not a sequence", "wrong_shape")
    return array
