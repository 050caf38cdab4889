"""Find the native library (``native/``), load it with ctypes, and declare its functions.

The library is in this folder (as a wheel installs it), or where ``make native`` builds it in a
checkout.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_int32, c_size_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Any, Final

from .errors import TooLong, UserError
from .search import DECLARED as OF_SEARCH
from .stream import DECLARED as OF_STREAMS

NAMES: Final = ("libdragoman.so", "libdragoman.dylib", "dragoman.dll")
INSTRUCTION_SETS: Final = ("baseline", "avx2", "avx512", "avx512vnni")  # the plainest first
OK, TOO_LONG, NO_MEMORY = 0, 3, 4
MISSING: Final = "the native library is not there; build it with `make native` (this needs a C compiler)"


class Input(ctypes.Structure):
    """``struct dragoman_input``: one source of one input."""

    _fields_ = (("data", c_void_p), ("length", c_int32), ("height", c_int32), ("breadth", c_int32))


class Rows(ctypes.Structure):
    """``struct dragoman_rows``: hypotheses that advance by one token."""

    _fields_ = (
        ("sources", c_int32), ("rows", c_int32), ("lengths", c_void_p), ("fixed", c_void_p), ("fixed_pitch", c_void_p),
        ("source", c_void_p), ("tokens", c_void_p), ("positions", c_void_p), ("slots", c_void_p),
        ("slot_pitch", c_void_p), ("cached", c_void_p), ("next", c_void_p), ("next_pitch", c_void_p),
        ("log_probs", c_void_p), ("attention", c_void_p), ("longest", c_int32),
    )  # fmt: skip


DECLARED: Final[dict[str, tuple[Any, list[Any]]]] = {
    "dragoman_open": (c_void_p, [c_void_p, c_size_t, c_char_p, c_char_p, c_size_t]),
    "dragoman_close": (None, [c_void_p]),
    "dragoman_describe": (c_int, [c_void_p, c_int, c_int]),
    "dragoman_source_name": (c_char_p, [c_void_p, c_int]),
    "dragoman_kernels": (c_char_p, [c_void_p]),
    "dragoman_has_kernels": (c_int, [c_char_p]),
    "dragoman_new": (c_void_p, [c_void_p]),
    "dragoman_free": (None, [c_void_p]),
    "dragoman_message": (c_char_p, [c_void_p]),
    "dragoman_encode": (c_int, [c_void_p, c_int, POINTER(Input)]),
    "dragoman_lengths": (c_int, [c_void_p, c_int, c_int, c_void_p]),
    "dragoman_copy": (c_int, [c_void_p, c_int, c_int, c_void_p, c_size_t]),
    "dragoman_step": (c_int, [c_void_p, POINTER(Rows)]),
    **OF_SEARCH,
    **OF_STREAMS,
    "tokenizer_open": (c_void_p, [c_void_p, c_size_t, c_char_p, c_size_t]),
    "tokenizer_close": (None, [c_void_p]),
    "tokenizer_count": (c_int32, [c_void_p]),
    "tokenizer_encode": (c_int, [c_void_p, c_char_p, c_size_t, c_void_p, c_size_t, POINTER(c_size_t)]),
    "tokenizer_decode": (c_int, [c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, POINTER(c_size_t)]),
    "tokenizer_piece": (c_int, [c_void_p, c_int32, c_void_p, c_size_t, POINTER(c_size_t)]),
}


def find_library() -> Path | None:
    """Return the path of the native library, or None if it is not installed or built."""
    here = Path(__file__).resolve().parent
    folders = (here, *(parent / "native" / "build" for parent in here.parents[2:3]))
    return next((folder / name for folder in folders for name in NAMES if (folder / name).is_file()), None)


def load_library(path: Path | None = None) -> ctypes.CDLL:
    """Load the library and declare its functions, or say why it cannot be used. ``path``: another one than usual."""
    path = path or find_library()
    if path is None:
        raise UserError(MISSING)
    return _load(path)


@cache
def _load(path: Path) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(str(path))
        for name, (result, arguments) in DECLARED.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except OSError as error:
        raise UserError(f"{path}: the native library cannot be loaded ({error}); build it again: make native") from None
    except AttributeError as error:
        raise UserError(
            f"{path}: the native library is of another version ({error}); build it again: make native"
        ) from None
    return library


def why_unavailable() -> str | None:
    """Return why the library cannot be used here, as a sentence; None: it can."""
    try:
        load_library()
    except UserError as error:
        return str(error)
    return None


def available_kernels() -> tuple[str, ...]:
    """Return the instruction sets that the library has and this processor can run, the plainest first."""
    if find_library() is None:
        return ()
    library = load_library()
    return tuple(name for name in INSTRUCTION_SETS if library.dragoman_has_kernels(name.encode()))


def check_status(status: int, sentence: str) -> None:
    """Raise the error that a function of the library reports; ``sentence`` is its message."""
    if status == OK:
        return
    if status == TOO_LONG:
        raise TooLong(sentence)
    raise MemoryError(sentence) if status == NO_MEMORY else UserError(sentence)
