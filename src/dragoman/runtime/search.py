"""The native library's own search: settings go in, hypotheses and traces come out, through ctypes.

It searches as ``dragoman.search`` does, with the same settings, the same order of candidates and the
same random numbers, but without CTC and without other models beside it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from ctypes import CFUNCTYPE, POINTER, c_double, c_float, c_int, c_int32, c_size_t, c_void_p
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np

DRAWS: Final = 64  # random numbers that are drawn at once
NORMALIZATIONS: Final = ("none", "average", "gnmt")
STOPS: Final = ("complete", "certain")

# The names of dragoman.h, in its order.
SETTINGS: Final = (
    "bos", "eos", "beam", "n_best", "normalize", "alpha", "stop", "min_length", "max_length", "no_repeat_ngram",
    "sample", "samples", "temperature", "top_k", "top_p", "seed", "batch", "want_attention", "want_trace",
)  # fmt: skip
LISTS: Final = ("forbidden", "forbidden_runs", "only", "limits", "prefixes", "keys")
PARTS: Final[tuple[tuple[str, type[np.generic]], ...]] = (
    ("hypothesis_ends", np.int32), ("token_ends", np.int32), ("scores", np.float64), ("finished", np.int8),
    ("tokens", np.int32), ("log_probs", np.float32), ("entropies", np.float32), ("margins", np.float32),
    ("path", np.int32), ("state_counts", np.int32), ("attention", np.float32), ("step_ends", np.int32),
    ("candidate_ends", np.int32), ("candidate_parents", np.int32), ("candidate_tokens", np.int32),
    ("candidate_log_probs", np.float32), ("candidate_totals", np.float64), ("candidate_fates", np.int8),
    ("row_attention", np.float32),
)  # fmt: skip

DrawCall = CFUNCTYPE(None, c_void_p, c_int32, c_int32, c_int32, POINTER(c_float))
CancelCall = CFUNCTYPE(c_int, c_void_p)

DECLARED: Final[dict[str, tuple[Any, list[Any]]]] = {
    "dragoman_settings_new": (c_void_p, []),
    "dragoman_settings_free": (None, [c_void_p]),
    "dragoman_set": (c_int, [c_void_p, c_int, c_double]),
    "dragoman_set_list": (c_int, [c_void_p, c_int, c_int, c_void_p, c_void_p]),
    "dragoman_set_calls": (None, [c_void_p, DrawCall, CancelCall, c_void_p]),
    "dragoman_search": (c_int, [c_void_p, c_int, c_void_p, c_void_p, POINTER(c_void_p)]),
    "dragoman_result_free": (None, [c_void_p]),
    "dragoman_result_part": (c_void_p, [c_void_p, c_int, POINTER(c_size_t)]),
}


class SearchSettings(Protocol):
    """The settings of a search: those of ``dragoman.search.options.SearchConfig``, where they are described."""

    @property
    def beam(self) -> int: ...
    @property
    def n_best(self) -> int: ...
    @property
    def normalize(self) -> str: ...
    @property
    def alpha(self) -> float: ...
    @property
    def stop(self) -> str: ...
    @property
    def min_length(self) -> int: ...
    @property
    def max_length(self) -> int | None: ...
    @property
    def no_repeat_ngram(self) -> int: ...
    @property
    def forbidden(self) -> tuple[int, ...]: ...
    @property
    def forbidden_runs(self) -> tuple[tuple[int, ...], ...]: ...
    @property
    def only(self) -> tuple[tuple[int, ...], ...]: ...
    @property
    def sample(self) -> bool: ...
    @property
    def samples(self) -> int: ...
    @property
    def temperature(self) -> float: ...
    @property
    def top_k(self) -> int: ...
    @property
    def top_p(self) -> float: ...
    @property
    def seed(self) -> int: ...


@dataclass(frozen=True, slots=True)
class NativeHypothesis:
    """One output."""

    tokens: np.ndarray  # (T,) int32, the end symbol included if it was produced
    log_probs: np.ndarray  # (T,) float32
    entropies: np.ndarray  # (T,) float32: of the model's distribution, in nats
    margins: np.ndarray  # (T,) float32: log-probability of the likeliest token less that of the second
    path: np.ndarray  # (T,) int32: the candidate of each step of the trace
    score: float  # the sum of the log-probabilities, after length normalisation
    finished: bool  # False: stopped at the length limit
    attention: np.ndarray | None  # (T, A, S)


@dataclass(frozen=True, slots=True)
class NativeStep:
    """One step of a trace: the candidates that were considered, best first. As ``dragoman.types.Frontier``."""

    parent: np.ndarray  # (C,) int32
    token: np.ndarray  # (C,) int32
    log_prob: np.ndarray  # (C,) float32
    total: np.ndarray  # (C,) float64
    fate: np.ndarray  # (C,) int8
    attention: np.ndarray | None  # (rows, A, S): where each row looked


@dataclass(frozen=True, slots=True)
class NativeResult:
    """The outcome of the search for one source."""

    hypotheses: tuple[NativeHypothesis, ...]  # best first; samples in the order they were drawn
    steps: tuple[NativeStep, ...]  # empty where no trace was asked for


class Settings:
    """Settings in the library's memory, and the functions that the library calls."""

    def __init__(
        self,
        library: ctypes.CDLL,
        config: SearchSettings,
        *,
        keys: Sequence[int] | Mapping[int, int],
        on_step: Callable[[], None] | None,
        check: Callable[[int], None],
    ) -> None:
        self._library = library
        self._check = check
        self._keys = keys
        self._seed = config.seed
        self._on_step = on_step
        self._generators: dict[int, dict[int, np.random.Generator]] = {}  # by source and row
        self.raised: BaseException | None = None
        self.pointer = library.dragoman_settings_new()
        if not self.pointer:
            raise MemoryError("there is not enough memory for the native library")
        numbers = {
            "beam": config.beam, "n_best": config.n_best, "normalize": NORMALIZATIONS.index(config.normalize),
            "alpha": config.alpha, "stop": STOPS.index(config.stop), "min_length": config.min_length,
            "max_length": config.max_length or 0, "no_repeat_ngram": config.no_repeat_ngram, "sample": config.sample,
            "samples": config.samples, "temperature": config.temperature, "top_k": config.top_k, "top_p": config.top_p,
        }  # fmt: skip
        for name, number in numbers.items():
            self.set(name, float(number))
        self.set_list("forbidden", config.forbidden)
        self.set_lists("forbidden_runs", config.forbidden_runs)
        self.set_lists("only", config.only)
        # ctypes keeps no reference of its own to these.
        self._calls = (DrawCall(self._draw), CancelCall(self._cancel) if on_step else CancelCall(0))
        library.dragoman_set_calls(self.pointer, *self._calls, None)

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            self._library.dragoman_settings_free(self.pointer)

    def set(self, name: str, value: float) -> None:
        """Set a number."""
        self._check(self._library.dragoman_set(self.pointer, SETTINGS.index(name), value))

    def set_list(self, name: str, numbers: Sequence[int]) -> None:
        """Set a list of numbers."""
        array = np.array(numbers, np.int32)
        self._check(
            self._library.dragoman_set_list(self.pointer, LISTS.index(name), len(array), array.ctypes.data, None)
        )

    def set_lists(self, name: str, sequences: Sequence[Sequence[int]]) -> None:
        """Set a list of sequences."""
        flat = np.array([number for sequence in sequences for number in sequence], np.int32)
        ends = np.cumsum([len(sequence) for sequence in sequences], dtype=np.int32)
        self._check(
            self._library.dragoman_set_list(
                self.pointer, LISTS.index(name), len(ends), flat.ctypes.data, ends.ctypes.data
            )
        )

    def _draw(self, _: int, source: int, row: int, block: int, numbers: Any) -> None:
        """Draw as ``search.paths.Sampler`` does: from a generator for each source and row."""
        generators = self._generators.setdefault(source, {})
        if row not in generators:
            generators[row] = np.random.default_rng([self._seed, self._keys[source] % 2**64, row])
        generator = generators[row]
        np.ctypeslib.as_array(numbers, (DRAWS,))[:] = generator.random(DRAWS, np.float32)

    def forget(self, source: int) -> None:
        """Forget the random numbers of a source that is done."""
        self._generators.pop(source, None)

    def _cancel(self, _: int) -> int:
        """Ask the caller whether to go on. An exception cannot pass through the library, so it is kept."""
        assert self._on_step is not None
        try:
            self._on_step()
        except BaseException as error:  # raised again when the library has returned
            self.raised = error
            return 1
        return 0


def read_results(library: ctypes.CDLL, result: int, maps: int) -> list[NativeResult]:
    """Copy a result of the library, which has ``maps`` attention maps for each token."""
    parts = {}
    for index, (name, kind) in enumerate(PARTS):
        length = c_size_t()
        place = library.dragoman_result_part(result, index, ctypes.byref(length))
        size = length.value * np.dtype(kind).itemsize
        parts[name] = np.frombuffer(ctypes.string_at(place, size) if size else b"", kind)
    states = parts["state_counts"].tolist()
    hypothesis_spans = _spans(parts["hypothesis_ends"])
    step_spans = _spans(parts["step_ends"]) if len(parts["step_ends"]) else [(0, 0)] * len(states)
    token_spans, candidate_spans = _spans(parts["token_ends"]), _spans(parts["candidate_ends"])
    scores, finished = parts["scores"].tolist(), parts["finished"].astype(bool).tolist()
    has_maps = bool(len(parts["attention"]))
    results, at, row_at = [], 0, 0
    for source, count in enumerate(states):
        hypotheses, steps = [], []
        for index in range(*hypothesis_spans[source]):
            span = slice(*token_spans[index])
            attention = None
            if has_maps:
                shape = (span.stop - span.start, maps, count)
                size = shape[0] * shape[1] * shape[2]
                attention = parts["attention"][at : at + size].reshape(shape)
                at += size
            names = ("tokens", "log_probs", "entropies", "margins", "path")
            tokens, log_probs, entropies, margins, path = (parts[name][span] for name in names)
            hypotheses.append(
                NativeHypothesis(tokens, log_probs, entropies, margins, path, scores[index], finished[index], attention)
            )
        rows = 1
        for index in range(*step_spans[source]):
            span = slice(*candidate_spans[index])
            attention = None
            if has_maps:
                shape = (rows, maps, count)
                size = shape[0] * shape[1] * shape[2]
                attention = parts["row_attention"][row_at : row_at + size].reshape(shape)
                row_at += size
            names = ("parents", "tokens", "log_probs", "totals", "fates")
            parent, token, log_prob, total, fate = (parts[f"candidate_{name}"][span] for name in names)
            steps.append(NativeStep(parent, token, log_prob, total, fate, attention))
            rows = int((fate == 1).sum())
        results.append(NativeResult(tuple(hypotheses), tuple(steps)))
    return results


def _spans(ends: np.ndarray) -> list[tuple[int, int]]:
    """Return where each of several parts begins and ends."""
    bounds = [0, *ends.tolist()]
    return list(pairwise(bounds))
