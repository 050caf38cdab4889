"""A search that is fed while it runs: sources enter at any time, and each result is there when it is done."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, c_int, c_int32, c_void_p
from typing import Any, Final, NamedTuple

import numpy as np

from .search import NativeResult, SearchSettings, Settings, read_results


class Entry(ctypes.Structure):
    """``struct dragoman_entry``: what is searched for one source."""

    _fields_ = (
        ("number", c_int32), ("key", c_int32), ("limit", c_int32), ("prefix_length", c_int32), ("prefix", c_void_p),
    )  # fmt: skip


DECLARED: Final[dict[str, tuple[Any, list[Any]]]] = {
    "dragoman_stream_new": (c_int, [c_void_p, c_void_p, POINTER(c_void_p)]),
    "dragoman_stream_free": (None, [c_void_p]),
    "dragoman_stream_room": (c_int, [c_void_p]),
    "dragoman_stream_add": (c_int, [c_void_p, c_int, c_void_p, POINTER(Entry)]),
    "dragoman_stream_advance": (c_int, [c_void_p]),
    "dragoman_stream_take": (c_int, [c_void_p, POINTER(c_int32), POINTER(c_void_p)]),
    "dragoman_stream_drop": (c_int, [c_void_p, c_int32]),
}


class StreamedSource(NamedTuple):
    """A source that enters a stream."""

    arrays: Mapping[str, np.ndarray]
    limit: int  # the most tokens of its output
    prefix: Sequence[int] = ()  # tokens that its output begins with
    key: int = 0  # seeds its samples


class SearchStream:
    """A running search. ``OpenedModel.stream`` makes it; it belongs to one thread.

    A result has the same bits whatever else is in the stream. After an error of ``advance`` it cannot go on.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        context: Any,
        config: SearchSettings,
        *,
        numbers: Mapping[str, float],
        maps: int,
        read_inputs: Callable[[Sequence[Mapping[str, np.ndarray]]], tuple[Any, list[np.ndarray]]],
        check: Callable[[int], None],
        check_setting: Callable[[int], None],
    ) -> None:
        """``numbers`` are settings beside those of ``config``; ``read_inputs`` and ``check`` are those of the model."""
        self._library, self._maps, self._read_inputs, self._check = library, maps, read_inputs, check
        self._keys: dict[int, int] = {}  # of the sources that are in the stream
        self._next = 0
        self._settings = Settings(library, config, keys=self._keys, on_step=None, check=check_setting)
        for name, number in numbers.items():
            self._settings.set(name, number)
        self._stream = c_void_p()
        check(library.dragoman_stream_new(context, self._settings.pointer, ctypes.byref(self._stream)))

    def __len__(self) -> int:
        """Return how many sources were added and neither taken nor dropped."""
        return len(self._keys)

    @property
    def room(self) -> int:
        """Return how many sources may be added now."""
        return int(self._library.dragoman_stream_room(self._stream))

    def add(self, sources: Sequence[StreamedSource]) -> list[int]:
        """Encode sources together, add them, and return their numbers. After an error none of them was added."""
        if not sources:
            return []
        inputs, _arrays = self._read_inputs([source.arrays for source in sources])
        prefixes = [np.array(source.prefix, np.int32) for source in sources]
        numbers = [(self._next + place) % 2**31 for place in range(len(sources))]
        self._next += len(sources)
        entries = (Entry * len(sources))()
        for place, (number, source, prefix) in enumerate(zip(numbers, sources, prefixes, strict=True)):
            # Keys are for the built-in random numbers; here the settings draw them.
            entries[place] = Entry(number, 0, source.limit, len(prefix), prefix.ctypes.data)
        self._check(self._library.dragoman_stream_add(self._stream, len(sources), inputs, entries))
        self._keys |= {number: source.key for number, source in zip(numbers, sources, strict=True)}
        return numbers

    def advance(self) -> None:
        """Advance all sources in flight by one token."""
        self._check(self._library.dragoman_stream_advance(self._stream))

    def take(self) -> list[tuple[int, NativeResult]]:
        """Return the numbers and results of the sources that are done, and forget them."""
        taken = []
        number, result = c_int32(), c_void_p()
        while self._library.dragoman_stream_take(self._stream, ctypes.byref(number), ctypes.byref(result)):
            try:
                (found,) = read_results(self._library, result.value or 0, self._maps)
            finally:
                self._library.dragoman_result_free(result)
            self._forget(number.value)
            taken.append((number.value, found))
        return taken

    def drop(self, number: int) -> None:
        """Give up a source. It has no result."""
        if number in self._keys:
            self._library.dragoman_stream_drop(self._stream, number)
            self._forget(number)

    def _forget(self, number: int) -> None:
        del self._keys[number]
        self._settings.forget(number)

    def close(self) -> None:
        """Free the memory of the stream, with whatever is in flight."""
        stream, self._stream = self._stream, c_void_p()
        self._library.dragoman_stream_free(stream)
