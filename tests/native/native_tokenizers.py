"""The tokenisers of the native library for tests: built with the system's compiler, called with ctypes."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

NATIVE = Path(__file__).parent.parent.parent / "native"
FILES = [NATIVE / f"tokenizer{part}.c" for part in ("", "_text", "_trie", "_subwords")]
STRICT = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"]


def compiler() -> str:
    found = shutil.which(os.environ.get("CC", "cc"))
    if found is None:
        pytest.skip("there is no C compiler (set CC)")
    return found


@cache
def library(folder: Path) -> ctypes.CDLL:
    """Build the library once for each test process."""
    path = folder / "tokenizers.so"
    subprocess.run([compiler(), *STRICT, "-fPIC", "-shared", "-o", path, *FILES], check=True)
    loaded = ctypes.CDLL(str(path))
    loaded.tokenizer_open.restype = ctypes.c_void_p
    return loaded


class NativeTokenizer:
    """A table, opened by the library."""

    def __init__(self, loaded: ctypes.CDLL, table: bytes) -> None:
        self._library, self._table = loaded, table
        message = ctypes.create_string_buffer(200)
        self._opened = ctypes.c_void_p(loaded.tokenizer_open(table, ctypes.c_size_t(len(table)), message, 200))
        if not self._opened:
            raise ValueError(message.value.decode())

    def __del__(self) -> None:
        self._library.tokenizer_close(self._opened)

    def encode(self, text: bytes, room: int | None = None) -> tuple[int, list[int]]:
        """Return the number of ids, and as many of them as there is room for."""
        room = 3 * len(text) + 8 if room is None else room
        ids, needed = (ctypes.c_int32 * room)(), ctypes.c_size_t()
        self._call("encode", text, ctypes.c_size_t(len(text)), ids, ctypes.c_size_t(room), ctypes.byref(needed))
        return needed.value, ids[: needed.value]

    def decode(self, ids: list[int], room: int = 1 << 16) -> bytes:
        given, text = (ctypes.c_int32 * len(ids))(*ids), ctypes.create_string_buffer(room)
        needed = ctypes.c_size_t()
        self._call("decode", given, ctypes.c_size_t(len(ids)), text, ctypes.c_size_t(room), ctypes.byref(needed))
        return text.raw[: needed.value] if needed.value <= room else self.decode(ids, needed.value)

    def piece(self, index: int) -> str:
        text, needed = ctypes.create_string_buffer(1 << 12), ctypes.c_size_t()
        self._call("piece", ctypes.c_int32(index), text, ctypes.c_size_t(1 << 12), ctypes.byref(needed))
        return text.raw[: needed.value].decode()

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, f"tokenizer_{name}")(self._opened, *arguments)
        if status:
            raise ValueError(f"tokenizer_{name} returns {status}")
