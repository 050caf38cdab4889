"""The tokenisers of the native library: text to ids and back, from a table in a model file."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from .errors import UserError
from .library import check_status, load_library

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIALS: Final = ("<pad>", "<unk>", "<s>", "</s>")
_SURROGATES = re.compile("[\ud800-\udfff]")


class NativeTokenizer:
    """Text to ids and back, as the tokeniser that its table was written from. Threads may share it."""

    def __init__(self, table: bytes | memoryview, name: str = "the tokeniser") -> None:
        """``table`` has the layout of native/tokenizer.h; ``name`` is what messages call it."""
        self._library = load_library()
        self._table = np.frombuffer(bytes(table), np.uint8)  # the library reads it as long as it is open
        message = ctypes.create_string_buffer(256)
        size = len(self._table)
        self._opened = self._library.tokenizer_open(self._table.ctypes.data if size else None, size, message, 256)
        if not self._opened:
            raise UserError(f"{name}: {message.value.decode()}")

    def __del__(self) -> None:
        if getattr(self, "_opened", None):
            self._library.tokenizer_close(self._opened)

    @property
    def size(self) -> int:
        """The size of the vocabulary, special tokens included."""
        return int(self._library.tokenizer_count(self._opened))

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without BOS and EOS; UNK for what is not known."""
        raw = _SURROGATES.sub("\ufffd", text).encode()
        room, needed = len(raw) + 16, ctypes.c_size_t()
        while True:
            ids = np.empty(room, np.int32)
            status = self._library.tokenizer_encode(
                self._opened, raw, len(raw), ids.ctypes.data, room, ctypes.byref(needed)
            )
            check_status(status, "the text is too long to be split into tokens; shorten it")
            if needed.value <= room:
                return [int(each) for each in ids[: needed.value]]
            room = needed.value

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids; PAD, BOS and EOS are skipped, UNK is shown as ⁇."""
        given, room, needed = np.array(ids, np.int32), 16 * len(ids) + 64, ctypes.c_size_t()
        while True:
            text = ctypes.create_string_buffer(room)
            status = self._library.tokenizer_decode(
                self._opened, given.ctypes.data, len(given), text, room, ctypes.byref(needed)
            )
            check_status(status, "a token id is outside the vocabulary")
            if needed.value <= room:
                return text.raw[: needed.value].decode()
            room = needed.value

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return a printable string for each id."""
        return [self._piece(int(index)) for index in ids]

    def _piece(self, index: int, room: int = 256) -> str:
        text, needed = ctypes.create_string_buffer(room), ctypes.c_size_t()
        status = self._library.tokenizer_piece(self._opened, index, text, room, ctypes.byref(needed))
        check_status(status, "a token id is outside the vocabulary")
        return text.raw[: needed.value].decode() if needed.value <= room else self._piece(index, needed.value)
