"""A model that the native library has opened: encode sources, advance hypotheses, search.

The arrays here are those of ``native/dragoman.h``. A model never changes, and many threads may use it
at once: each call takes a context of its own from a pool.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from .errors import UserError
from .library import NO_MEMORY, Input, Rows, check_status, load_library
from .search import NativeResult, SearchSettings, Settings, read_results
from .stream import SearchStream

FACTS: Final = {
    name: number
    for number, name in enumerate((
        "vocabulary", "sources", "source_kind", "source_width", "maps", "fixed", "fixed_rows", "fixed_width", "slots",
        "slot_rows", "slot_width", "slot_grows", "has_states", "has_ctc", "summary_width",
    ))
}  # fmt: skip
OF_FIXED, OF_SLOT, OF_STATES, OF_BEGIN, OF_CTC, OF_SUMMARY = range(6)
SOURCE_KINDS: Final[tuple[Literal["tokens", "frames", "picture"], ...]] = ("tokens", "frames", "picture")
AXES: Final = {"tokens": 1, "frames": 2, "picture": 3}


class SourceForm(NamedTuple):
    """What a source of a model is."""

    name: str
    kind: Literal["tokens", "frames", "picture"]
    width: int  # the vocabulary of tokens, the width of a frame, the channels of a picture


class SlotForm(NamedTuple):
    """What a piece of the state of a hypothesis is."""

    rows: int  # 0: the number grows
    width: int  # 0: as wide as there are source states
    grows: bool


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """What is known of B sources before the first token; shorter sources are padded with zeros."""

    lengths: np.ndarray  # (B,) int32: the source states of each source; 1 where there are none
    fixed: tuple[np.ndarray, ...]  # each (B, rows, width)
    slots: tuple[np.ndarray, ...]  # each (B, rows, width)
    position: np.ndarray  # (B,) int32: of the first token
    cached: np.ndarray  # (B,) int32: rows of the slots that grow
    ctc: np.ndarray | None  # (B, S, V) logits
    summary: np.ndarray | None  # (B, D)


@dataclass(frozen=True, slots=True)
class AdvancedBatch:
    """What N hypotheses are after one more token."""

    log_probs: np.ndarray  # (N, V)
    attention: np.ndarray | None  # (N, A, S)
    slots: tuple[np.ndarray, ...]  # each (N, rows, width)


class OpenedModel:
    """A model file in the native library. Many threads may use it at once."""

    def __init__(self, data: np.ndarray | bytes, *, kernels: str = "", library: ctypes.CDLL | None = None) -> None:
        """Open the bytes of a file. ``kernels`` names an instruction set; by default the best is taken."""
        self._library = library or load_library()
        self._data = np.frombuffer(data, np.uint8)  # the library reads the weights from there
        message = ctypes.create_string_buffer(256)
        self._model = self._library.dragoman_open(
            self._data.ctypes.data, len(self._data), kernels.encode(), message, len(message)
        )
        if not self._model:
            raise UserError(f"the native library cannot run this model: {message.value.decode()}")
        self._idle: list[Any] = []  # contexts that no thread uses
        self._lock = Lock()
        self.vocabulary = self._fact("vocabulary")
        self.maps = self._fact("maps")
        self.has_states, self.has_ctc = bool(self._fact("has_states")), bool(self._fact("has_ctc"))
        self.summary_width = self._fact("summary_width")
        self.fixed_count = self._fact("fixed")
        # of each fixed value: does it have a row for each source state?
        self.follows_states = tuple(self._fact("fixed_rows", index) < 0 for index in range(self.fixed_count))
        self.sources = tuple(
            SourceForm(
                self._library.dragoman_source_name(self._model, index).decode(),
                SOURCE_KINDS[self._fact("source_kind", index)],
                self._fact("source_width", index),
            )
            for index in range(self._fact("sources"))
        )
        self.slots = tuple(
            SlotForm(
                max(0, self._fact("slot_rows", index)),
                max(0, self._fact("slot_width", index)),
                bool(self._fact("slot_grows", index)),
            )
            for index in range(self._fact("slots"))
        )

    def __del__(self) -> None:
        for context in self.__dict__.get("_idle", ()):
            self._library.dragoman_free(context)
        if self.__dict__.get("_model"):
            self._library.dragoman_close(self._model)

    @property
    def kernels(self) -> str:
        """Return the name of the instruction set that is used."""
        return str(self._library.dragoman_kernels(self._model).decode())

    def encode(self, batch: Sequence[Mapping[str, np.ndarray]]) -> EncodedBatch:
        """Encode sources: token ids (S,), frames (S, D) or a picture (H, W, C) by name."""
        count, (inputs, _arrays) = len(batch), self._inputs(batch)
        with self._context() as context:
            self._check(context, self._library.dragoman_encode(context, count, inputs))
            lengths = self._lengths(context, OF_STATES, 0, count) if self.has_states else None
            lengths = np.ones(count, np.int32) if lengths is None else lengths
            longest = int(lengths.max())
            fixed = tuple(
                self._copy(context, OF_FIXED, index, count, self._fact("fixed_width", index))
                for index in range(self.fixed_count)
            )
            slots, cached = [], np.zeros(count, np.int32)
            for index, slot in enumerate(self.slots):
                own = self._lengths(context, OF_SLOT, index, count)
                if own is None:  # it begins with zeros
                    slots.append(np.zeros((count, 0 if slot.grows else slot.rows, slot.width or longest), np.float32))
                    continue
                rows = None if slot.width else 1
                slots.append(self._copy(context, OF_SLOT, index, count, slot.width or longest, rows))
                cached = own if slot.grows else cached
            begin = self._lengths(context, OF_BEGIN, 0, count)
            return EncodedBatch(
                lengths,
                fixed,
                tuple(slots),
                np.zeros(count, np.int32) if begin is None else begin,
                cached,
                self._copy(context, OF_CTC, 0, count, self.vocabulary) if self.has_ctc else None,
                self._copy(context, OF_SUMMARY, 0, count, self.summary_width)[:, 0] if self.summary_width else None,
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
        count, longest = len(tokens), int(lengths.max())
        ints = [np.ascontiguousarray(array, np.int32) for array in (lengths, source, tokens, position, cached)]
        held = [np.ascontiguousarray(array, np.float32) for array in (*fixed, *slots)]
        after = [
            np.zeros((count, 1 if slot.grows else slot.rows, slot.width or longest), np.float32) for slot in self.slots
        ]
        log_probs = np.empty((count, self.vocabulary), np.float32)
        weights = np.zeros((count, self.maps, longest), np.float32) if attention and self.maps else None
        pointers = [_pointers(arrays) for arrays in (held[: len(fixed)], held[len(fixed) :], after)]
        (fixed_at, fixed_pitch), (slots_at, slot_pitch), (next_at, next_pitch) = pointers
        rows = Rows(
            len(lengths), count, ints[0].ctypes.data, fixed_at.ctypes.data, fixed_pitch.ctypes.data,
            ints[1].ctypes.data, ints[2].ctypes.data, ints[3].ctypes.data, slots_at.ctypes.data, slot_pitch.ctypes.data,
            ints[4].ctypes.data, next_at.ctypes.data, next_pitch.ctypes.data, log_probs.ctypes.data,
            None if weights is None else weights.ctypes.data, longest,
        )  # fmt: skip
        with self._context() as context:
            self._check(context, self._library.dragoman_step(context, ctypes.byref(rows)))
        for index, slot in enumerate(self.slots):
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
        names = range(count) if keys is None else keys
        settings = Settings(self._library, config, keys=names, on_step=on_step, check=_check_setting)
        for name, number in (("bos", bos), ("eos", eos), ("batch", batch_size)):
            settings.set(name, number)
        settings.set("want_attention", attention)
        settings.set("want_trace", trace)
        if limits is not None:
            settings.set_list("limits", limits)
        if prefixes is not None:
            settings.set_lists("prefixes", prefixes)
        result = ctypes.c_void_p()
        with self._context() as context:
            status = self._library.dragoman_search(context, count, inputs, settings.pointer, ctypes.byref(result))
            if settings.raised is not None:
                raise settings.raised
            self._check(context, status)
        try:
            return read_results(self._library, result.value or 0, self.maps)
        finally:
            self._library.dragoman_result_free(result)

    @contextmanager
    def stream(
        self,
        config: SearchSettings,
        *,
        bos: int,
        eos: int,
        attention: bool = False,
        trace: bool = False,
        batch_size: int = 64,
    ) -> Iterator[SearchStream]:
        """Yield a search that is fed while it runs. ``batch_size`` sources are in flight at the same time."""
        numbers = {"bos": bos, "eos": eos, "batch": batch_size, "want_attention": attention, "want_trace": trace}
        with self._context() as context:
            stream = SearchStream(
                self._library,
                context,
                config,
                numbers=numbers,
                maps=self.maps,
                read_inputs=self._inputs,
                check=lambda status: self._check(context, status),
                check_setting=_check_setting,
            )
            try:
                yield stream
            finally:
                stream.close()

    # ---- calls of the library

    @contextmanager
    def _context(self) -> Iterator[Any]:
        """Take a context from the pool, or make one, and put it back after use."""
        with self._lock:
            context = self._idle.pop() if self._idle else None
        context = context or self._library.dragoman_new(self._model)
        if not context:
            raise MemoryError("there is not enough memory for the native library")
        try:
            yield context
        finally:
            with self._lock:
                self._idle.append(context)

    def _inputs(self, batch: Sequence[Mapping[str, np.ndarray]]) -> tuple[Any, list[np.ndarray]]:
        """Return the sources as the library reads them, and the arrays that must stay in memory meanwhile."""
        arrays = []
        inputs = (Input * max(1, len(batch) * len(self.sources)))()
        for index, (row, source) in enumerate((row, source) for row in batch for source in self.sources):
            array = np.ascontiguousarray(row[source.name], np.int32 if source.kind == "tokens" else np.float32)
            if array.ndim != AXES[source.kind]:
                raise UserError(f"{source.name}: the array has {array.ndim} axes, which {source.kind} do not have")
            if source.kind != "tokens" and array.shape[-1] != source.width:
                raise UserError(f"{source.name}: the width is {array.shape[-1]}, and the model reads {source.width}")
            arrays.append(array)
            height, breadth = array.shape[:2] if source.kind == "picture" else (0, 0)
            length = height * breadth if source.kind == "picture" else len(array)
            inputs[index] = Input(array.ctypes.data, length, height, breadth)
        return inputs, arrays

    def _lengths(self, context: Any, value: int, index: int, count: int) -> np.ndarray | None:
        """Return the rows of a value of each source; None: the model has no such value."""
        lengths = np.zeros(count, np.int32)
        status = self._library.dragoman_lengths(context, value, index, lengths.ctypes.data)
        return None if status else lengths

    def _copy(
        self, context: Any, value: int, index: int, count: int, width: int, rows: int | None = None
    ) -> np.ndarray:
        """Return a value of all sources, (B, rows, width)."""
        if rows is None:
            lengths = self._lengths(context, value, index, count)
            rows = 1 if lengths is None else int(lengths.max())
        array = np.zeros((count, rows, width), np.float32)
        self._check(context, self._library.dragoman_copy(context, value, index, array.ctypes.data, rows * width))
        return array

    def _fact(self, name: str, index: int = 0) -> int:
        return int(self._library.dragoman_describe(self._model, FACTS[name], index))

    def _check(self, context: Any, status: int) -> None:
        if status:
            check_status(status, self._library.dragoman_message(context).decode())


def _check_setting(status: int) -> None:
    if status == NO_MEMORY:
        raise MemoryError("there is not enough memory for the native library")
    if status:
        raise UserError("a setting of the search is impossible for the native library")


def _pointers(arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return where the arrays are, and how many numbers each has for a row."""
    places = np.array([array.ctypes.data for array in arrays] or [0], np.uintp)
    return places, np.array([array[0].size for array in arrays] or [0], np.uintp)
