"""Run a program with the native library (``native/``), through ctypes.

The library is in this folder (as a wheel installs it), or where ``make native`` builds it in a
checkout. ``find_library`` returns None if it is in neither place.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import POINTER, c_char_p, c_int, c_int32, c_size_t, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from dragoman.config import TooLong
from dragoman.errors import UserError
from dragoman.program.file import write_program
from dragoman.program.native_search import DECLARED, NativeResult, SearchSettings, Settings, read_results
from dragoman.program.table import Program

NAMES: Final = ("libdragoman.so", "libdragoman.dylib", "dragoman.dll")
OK, TOO_LONG, NO_MEMORY, CANCELLED = 0, 3, 4, 5
OF_FIXED, OF_SLOT, OF_STATES, OF_BEGIN, OF_CTC, OF_SUMMARY = range(6)


class _Input(ctypes.Structure):
    _fields_ = (("data", c_void_p), ("length", c_int32), ("height", c_int32), ("breadth", c_int32))


class _Rows(ctypes.Structure):
    _fields_ = (
        ("sources", c_int32), ("rows", c_int32), ("lengths", c_void_p), ("fixed", c_void_p), ("fixed_pitch", c_void_p),
        ("source", c_void_p), ("tokens", c_void_p), ("positions", c_void_p), ("slots", c_void_p),
        ("slot_pitch", c_void_p), ("cached", c_void_p), ("next", c_void_p), ("next_pitch", c_void_p),
        ("log_probs", c_void_p), ("attention", c_void_p), ("longest", c_int32),
    )  # fmt: skip


def find_library() -> Path | None:
    """Return the path of the native library, or None if it is not installed or built."""
    here = Path(__file__).resolve().parent
    folders = (here, here.parents[2] / "native" / "build")
    return next((folder / name for folder in folders for name in NAMES if (folder / name).is_file()), None)


@cache
def load_library(path: Path) -> ctypes.CDLL:
    """Load the library and declare its functions."""
    library = ctypes.CDLL(str(path))
    declared: dict[str, tuple[Any, list[Any]]] = {
        "dragoman_open": (c_void_p, [c_char_p, c_size_t, c_char_p, c_char_p, c_size_t]),
        "dragoman_close": (None, [c_void_p]),
        "dragoman_describe": (c_int, [c_void_p, c_int, c_int]),
        "dragoman_kernels": (c_char_p, [c_void_p]),
        "dragoman_has_kernels": (c_int, [c_char_p]),
        "dragoman_new": (c_void_p, [c_void_p]),
        "dragoman_free": (None, [c_void_p]),
        "dragoman_message": (c_char_p, [c_void_p]),
        "dragoman_encode": (c_int, [c_void_p, c_int, POINTER(_Input)]),
        "dragoman_lengths": (c_int, [c_void_p, c_int, c_int, c_void_p]),
        "dragoman_copy": (c_int, [c_void_p, c_int, c_int, c_void_p, c_size_t]),
        "dragoman_step": (c_int, [c_void_p, POINTER(_Rows)]),
        **DECLARED,
    }
    for name, (result, arguments) in declared.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def available_kernels() -> tuple[str, ...]:
    """Return the instruction sets that the library has and this processor can run, the plainest first."""
    path = find_library()
    if path is None:
        return ()
    library = load_library(path)
    return tuple(
        name for name in ("baseline", "avx2", "avx512", "avx512vnni") if library.dragoman_has_kernels(name.encode())
    )


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """What is known of B sources before the first token; shorter sources are padded with zeros."""

    lengths: np.ndarray  # (B,) int32: the source states of each source; 1 where there are none
    fixed: tuple[np.ndarray, ...]  # each (B, rows, width)
    slots: tuple[np.ndarray, ...]  # each (B, rows, width)
    position: np.ndarray  # (B,) int32: of the first token
    cached: np.ndarray  # (B,) int32: rows of the slots that grow
    ctc: np.ndarray | None  # (B, S, V + 1) logits
    summary: np.ndarray | None  # (B, D)


@dataclass(frozen=True, slots=True)
class AdvancedBatch:
    """What N hypotheses are after one more token."""

    log_probs: np.ndarray  # (N, V)
    attention: np.ndarray | None  # (N, A, S)
    slots: tuple[np.ndarray, ...]  # each (N, rows, width)


class _Opened:
    """A model in the library's memory. It never changes, so threads may share it."""

    def __init__(self, library: ctypes.CDLL, file: bytes, kernels: str) -> None:
        self.library = library
        self._file = file  # the library reads it as long as the model is open
        message = ctypes.create_string_buffer(256)
        self.model = library.dragoman_open(file, len(file), kernels.encode(), message, len(message))
        if not self.model:
            raise UserError(f"the native library cannot run this model: {message.value.decode()}")

    def __del__(self) -> None:
        if self.model:
            self.library.dragoman_close(self.model)


class NativeProgram:
    """A program in the native library. One thread may use it at a time; ``share`` is for more."""

    def __init__(self, program: Program, *, int8: bool = False, kernels: str = "", path: Path | None = None) -> None:
        """Open a program. ``kernels`` names an instruction set; by default the best is taken."""
        path = path or find_library()
        if path is None:
            raise UserError("the native library is not there; build it with `make native` (this needs a C compiler)")
        self._begin(program, _Opened(load_library(path), write_program(program, int8=int8), kernels))

    def _begin(self, program: Program, opened: _Opened) -> None:
        self.program = program
        self._opened = opened
        self._library, self._model = opened.library, opened.model
        self._context = self._library.dragoman_new(self._model)
        if not self._context:
            raise MemoryError("there is not enough memory for the native library")

    def __del__(self) -> None:
        if getattr(self, "_context", None):
            self._library.dragoman_free(self._context)

    def share(self) -> NativeProgram:
        """Return another one with the same model in memory, for another thread."""
        other = NativeProgram.__new__(NativeProgram)
        other._begin(self.program, self._opened)
        return other

    @property
    def kernels(self) -> str:
        """Return the name of the instruction set that is used."""
        return str(self._library.dragoman_kernels(self._model).decode())

    @property
    def _maps(self) -> int:
        """Return the number of attention maps of a step."""
        return int(self._library.dragoman_describe(self._model, 4, 0))

    def encode(self, batch: Sequence[Mapping[str, np.ndarray]]) -> EncodedBatch:
        """Encode sources: token ids (S,), frames (S, D) or a picture (H, W, C) by name."""
        program, (inputs, _arrays) = self.program, self._inputs(batch)
        self._check(self._library.dragoman_encode(self._context, len(batch), inputs))
        count = len(batch)
        lengths = self._lengths(OF_STATES, 0, count) if program.states else np.ones(count, np.int32)
        fixed = tuple(self._copy(OF_FIXED, index, count) for index in range(len(program.fixed)))
        slots, cached = [], np.zeros(count, np.int32)
        for index, slot in enumerate(program.slots):
            if slot.begin:
                slots.append(self._copy(OF_SLOT, index, count, None if slot.width else int(lengths.max())))
                cached = self._lengths(OF_SLOT, index, count) if slot.grows else cached
            else:
                width = slot.width or int(lengths.max())
                slots.append(np.zeros((count, 0 if slot.grows else slot.rows, width), np.float32))
        return EncodedBatch(
            lengths,
            fixed,
            tuple(slots),
            self._lengths(OF_BEGIN, 0, count) if program.begin else np.zeros(count, np.int32),
            cached,
            self._copy(OF_CTC, 0, count) if program.ctc else None,
            self._copy(OF_SUMMARY, 0, count)[:, 0] if program.summary else None,
        )

    def step(
        self,
        tokens: np.ndarray,
        source: np.ndarray,
        lengths: np.ndarray,
        fixed: Sequence[np.ndarray],
        slots: Sequence[np.ndarray],
        position: np.ndarray,
        cached: np.ndarray,
        *,
        attention: bool = False,
    ) -> AdvancedBatch:
        """Advance N hypotheses by ``tokens`` (N,); ``source`` (N,) says which source each belongs to, ascending.

        The other arrays are those of ``EncodedBatch``: of the sources, and of the hypotheses.
        """
        program = self.program
        count, longest = len(tokens), int(lengths.max())
        ints = [np.ascontiguousarray(array, np.int32) for array in (lengths, source, tokens, position, cached)]
        held = [np.ascontiguousarray(array, np.float32) for array in (*fixed, *slots)]
        after = [
            np.zeros((count, 1 if slot.grows else slot.rows, slot.width or longest), np.float32)
            for slot in program.slots
        ]
        log_probs = np.empty((count, program.vocabulary), np.float32)
        has_maps = attention and self._maps
        weights = np.zeros((count, self._maps, longest), np.float32) if has_maps else None
        pointers = [_pointers(arrays) for arrays in (held[: len(fixed)], held[len(fixed) :], after)]
        (fixed_at, fixed_pitch), (slots_at, slot_pitch), (next_at, next_pitch) = pointers
        rows = _Rows(
            len(lengths), count, ints[0].ctypes.data, fixed_at.ctypes.data, fixed_pitch.ctypes.data,
            ints[1].ctypes.data, ints[2].ctypes.data, ints[3].ctypes.data, slots_at.ctypes.data, slot_pitch.ctypes.data,
            ints[4].ctypes.data, next_at.ctypes.data, next_pitch.ctypes.data, log_probs.ctypes.data,
            None if weights is None else weights.ctypes.data, longest,
        )  # fmt: skip
        self._check(self._library.dragoman_step(self._context, ctypes.byref(rows)))
        for index, slot in enumerate(program.slots):
            if slot.grows:
                grown = np.pad(slots[index], ((0, 0), (0, 1), (0, 0)))[:, : int(cached.max()) + 1]
                grown[np.arange(count), cached] = after[index][:, 0]
                after[index] = grown
        return AdvancedBatch(log_probs, weights, tuple(after))

    def search(
        self,
        batch: Sequence[Mapping[str, np.ndarray]],
        config: SearchSettings,
        *,
        bos: int,
        eos: int,
        limits: Sequence[int] | None = None,
        prefixes: Sequence[Sequence[int]] | None = None,
        keys: Sequence[int] | None = None,
        attention: bool = False,
        trace: bool = False,
        batch_size: int = 64,
        on_step: Callable[[], None] | None = None,
    ) -> list[NativeResult]:
        """Encode sources and search for their outputs, one result per source, in their order.

        The arguments are those of ``dragoman.search.run.search``. ``batch_size`` sources are searched at
        the same time; when one is done, the next one enters, so neighbours should have similar lengths.
        """
        count = len(batch)
        for name, given in (("limit", limits), ("prefix", prefixes), ("key", keys)):
            if given is not None and len(given) != count:
                raise UserError(f"search needs one {name} per source: got {len(given)} for {count} sources")
        if not count:
            return []
        inputs, _arrays = self._inputs(batch)
        settings = Settings(
            self._library,
            config,
            keys=range(count) if keys is None else keys,
            on_step=on_step,
            check=self._check_setting,
        )
        for name, number in (("bos", bos), ("eos", eos), ("batch", batch_size)):
            settings.set(name, number)
        settings.set("want_attention", attention)
        settings.set("want_trace", trace)
        if limits is not None:
            settings.set_list("limits", limits)
        if prefixes is not None:
            settings.set_lists("prefixes", prefixes)
        result = c_void_p()
        reason = self._library.dragoman_search(self._context, count, inputs, settings.pointer, ctypes.byref(result))
        if settings.raised is not None:
            raise settings.raised
        self._check(reason)
        try:
            return read_results(self._library, result.value or 0, self._maps)
        finally:
            self._library.dragoman_result_free(result)

    def _inputs(self, batch: Sequence[Mapping[str, np.ndarray]]) -> tuple[Any, list[np.ndarray]]:
        """Return the sources as the library reads them, and the arrays that must stay in memory meanwhile."""
        program, arrays = self.program, []
        inputs = (_Input * max(1, len(batch) * len(program.sources)))()
        for index, (row, source) in enumerate((row, source) for row in batch for source in program.sources):
            array = np.ascontiguousarray(row[source.name], np.int32 if source.kind == "tokens" else np.float32)
            if array.ndim != {"tokens": 1, "frames": 2, "picture": 3}[source.kind]:
                raise UserError(f"{source.name}: the array has {array.ndim} axes, which {source.kind} do not have")
            if source.kind != "tokens" and array.shape[-1] != source.width:
                raise UserError(f"{source.name}: the width is {array.shape[-1]}, and the model reads {source.width}")
            arrays.append(array)
            height, breadth = array.shape[:2] if source.kind == "picture" else (0, 0)
            length = height * breadth if source.kind == "picture" else len(array)
            inputs[index] = _Input(array.ctypes.data, length, height, breadth)
        return inputs, arrays

    def _lengths(self, value: int, index: int, count: int) -> np.ndarray:
        lengths = np.zeros(count, np.int32)
        self._check(self._library.dragoman_lengths(self._context, value, index, lengths.ctypes.data))
        return lengths

    def _copy(self, value: int, index: int, count: int, columns: int | None = None) -> np.ndarray:
        """Return a value of all sources, (B, rows, width); ``columns``: of weights, which have one row."""
        width = columns or self._width(value, index)
        rows = 1 if columns else int(self._lengths(value, index, count).max())
        array = np.zeros((count, rows, width), np.float32)
        self._check(self._library.dragoman_copy(self._context, value, index, array.ctypes.data, rows * width))
        return array

    def _width(self, value: int, index: int) -> int:
        describe = self._library.dragoman_describe
        if value == OF_FIXED:
            return int(describe(self._model, 7, index))
        if value == OF_SLOT:
            return self.program.slots[index].width
        return int(describe(self._model, 14, 0)) if value == OF_SUMMARY else self.program.vocabulary + 1

    def _check_setting(self, reason: int) -> None:
        if reason == NO_MEMORY:
            raise MemoryError("there is not enough memory for the native library")
        if reason != OK:
            raise UserError("a setting of the search is impossible for the native library")

    def _check(self, reason: int) -> None:
        if reason == OK:
            return
        sentence = self._library.dragoman_message(self._context).decode()
        if reason == TOO_LONG:
            raise TooLong(sentence)
        raise MemoryError(sentence) if reason == NO_MEMORY else UserError(sentence)


def _pointers(arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return where the arrays are, and how many numbers each has for a row."""
    places = np.array([array.ctypes.data for array in arrays] or [0], np.uintp)
    return places, np.array([array[0].size for array in arrays] or [0], np.uintp)
