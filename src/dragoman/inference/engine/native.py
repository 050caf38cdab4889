"""The engine that runs a file ``model.dragoman`` with the native library. It does not need torch.

The library searches by itself. What it does not cover is searched by ``dragoman.search``, which drives
the library token by token and needs torch: CTC in the ranking, constraints on the outputs, outputs
that are followed token by token, and whatever an ensemble or a fusion with a language model asks of
this engine's decoder.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dragoman.data.tokenizers import Tokenizer
from dragoman.data.vocabulary import BOS, EOS
from dragoman.errors import UserError
from dragoman.inference.engine.contract import (
    Arrays,
    Engine,
    Entering,
    RunningSearch,
    SelfAttention,
    label_log_probs,
    missing_ctc,
)
from dragoman.inference.engine.single import Inputs, SingleEngine
from dragoman.program.table import Program, Slot, Source
from dragoman.runtime.container import Container
from dragoman.runtime.opened import OpenedModel
from dragoman.runtime.search import NativeResult
from dragoman.runtime.stream import SearchStream, StreamedSource
from dragoman.search.options import SearchConfig
from dragoman.search.trace import Result
from dragoman.types import Frontier, Hypothesis, Trace

if TYPE_CHECKING:
    import torch

    from dragoman.inference.engine.programs import ProgramEngine, RowsAdvanced
    from dragoman.program.reference import Encoded
    from dragoman.search.rows import SearchDecoder
    from dragoman.search.run import MakeRules

GREEDY = SearchConfig(beam=1, normalize="none")


class NativeEngine(SingleEngine):
    """Computes with the native library."""

    name = "native"

    def __init__(self, inputs: Inputs, opened: OpenedModel, torch_engine: Callable[[], Engine]) -> None:
        """``torch_engine`` returns the engine that shows what the library does not."""
        super().__init__(inputs)
        self._opened, self._torch_engine = opened, torch_engine
        self.has_attention = bool(opened.maps)
        self.chunk = inputs.chunk if any(slot.grows for slot in opened.slots) else None

    @cached_property
    def _steps(self) -> ProgramEngine:
        """The same model, advanced token by token from torch."""
        from dragoman.inference.engine.programs import ProgramEngine

        return ProgramEngine(self.inputs, NativeRunner(self._opened), self.name)

    @property
    def device(self) -> torch.device:
        return self._steps.device

    @property
    def place(self) -> str:
        return "cpu"

    @property
    def of_sequences(self) -> Engine:
        return self._torch_engine()

    @property
    def decoder(self) -> SearchDecoder:
        return self._steps.decoder

    def ctc_decoder(self) -> SearchDecoder:
        return self._steps.ctc_decoder()

    @property
    def has_ctc(self) -> bool:
        return self._opened.has_ctc

    def ctc_log_probs(self, rows: Sequence[Arrays]) -> list[np.ndarray]:
        encoded = self._opened.encode(rows)
        if encoded.ctc is None:
            raise missing_ctc(self.inputs.name)
        return [label_log_probs(row[:length]) for row, length in zip(encoded.ctc, encoded.lengths, strict=True)]

    def encode(self, rows: Sequence[Arrays]) -> Any:
        return self._steps.encode(rows)

    def search(
        self,
        rows: Sequence[Arrays],
        config: SearchConfig,
        *,
        limits: Sequence[int],
        prefixes: Sequence[Sequence[int]] | None = None,
        keys: Sequence[int] | None = None,
        attention: bool = False,
        trace: bool = True,
        on_step: Callable[[], None] | None = None,
        on_token: Callable[[int, tuple[int, ...]], None] | None = None,
        further: MakeRules | None = None,
    ) -> list[Result]:
        options: dict[str, Any] = {
            "limits": limits, "prefixes": prefixes, "keys": keys, "attention": attention, "trace": trace,
            "on_step": on_step,
        }  # fmt: skip
        if config.ctc or on_token is not None or further is not None:
            return super().search(rows, config, **options, on_token=on_token, further=further)
        found = self._opened.search(rows, config, bos=BOS, eos=EOS, batch_size=max(1, len(rows)), **options)
        forced = [()] * len(rows) if prefixes is None else prefixes
        return [_as_result(each, tuple(prefix)) for each, prefix in zip(found, forced, strict=True)]

    def can_run_on(self, config: SearchConfig) -> bool:
        return not config.ctc

    @contextmanager
    def running_search(
        self, config: SearchConfig, *, attention: bool = False, trace: bool = True, batch: int = 64
    ) -> Iterator[RunningSearch]:
        options: dict[str, Any] = {"attention": attention, "trace": trace, "batch_size": batch}
        with self._opened.stream(config, bos=BOS, eos=EOS, **options) as stream:
            yield NativeRunningSearch(stream)

    def force(self, rows: Sequence[Arrays], targets: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
        limits = [max(1, len(target)) for target in targets]  # so that the target is the output, whatever its end
        options: dict[str, Any] = {"bos": BOS, "eos": EOS, "batch_size": max(1, len(rows))}
        results = self._opened.search(rows, GREEDY, limits=limits, prefixes=targets, **options)
        return [
            tuple(result.hypotheses[0].log_probs[: len(target)].tolist())
            for result, target in zip(results, targets, strict=True)
        ]

    def score_outputs(self, rows: Sequence[Arrays], outputs: Sequence[Sequence[int]], vocabulary: int) -> np.ndarray:
        pairs = [(row, output) for row in rows for output in outputs]
        scored = self.force([row for row, _ in pairs], [output for _, output in pairs])
        found = np.zeros((len(pairs), max(map(len, outputs))), np.float32)  # (B * outputs, T)
        for own, log_probs in zip(found, scored, strict=True):
            own[: len(log_probs)] = log_probs
        return found.reshape(len(rows), len(outputs), -1)

    def represent(self, rows: Sequence[Arrays]) -> tuple[np.ndarray, str]:
        if not self._opened.summary_width:
            return self._torch_engine().represent(rows)
        summary = self._opened.encode(rows).summary
        assert summary is not None
        return summary, "the encoder's summary of the source"

    def self_attention(self, row: Arrays, outputs: Sequence[Sequence[int]]) -> SelfAttention:
        return self._torch_engine().self_attention(row, outputs)


class NativeRunningSearch:
    """A search of the library that inputs enter while it runs."""

    def __init__(self, stream: SearchStream) -> None:
        self._stream = stream
        self._prefixes: dict[int, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self._stream)

    @property
    def room(self) -> int:
        return self._stream.room

    def add(self, inputs: Sequence[Entering]) -> list[int]:
        numbers = self._stream.add([StreamedSource(*each) for each in inputs])
        self._prefixes |= {number: tuple(each.prefix) for number, each in zip(numbers, inputs, strict=True)}
        return numbers

    def advance(self) -> None:
        self._stream.advance()

    def take(self) -> list[tuple[int, Result]]:
        return [(number, _as_result(found, self._prefixes.pop(number))) for number, found in self._stream.take()]

    def drop(self, number: int) -> None:
        self._stream.drop(number)
        self._prefixes.pop(number, None)


def open_engine(
    inputs: Inputs, target: Tokenizer, container: Container, torch_engine: Callable[[], Engine]
) -> NativeEngine:
    """Open a model file for a run whose sources and target vocabulary it has to have."""
    opened = OpenedModel(container.data)
    names = [form.name for form in opened.sources]
    if names != list(inputs.modalities) or opened.vocabulary != target.size:
        raise UserError(f"{container.name}: belongs to another run than {inputs.name}; export the run again")
    return NativeEngine(inputs, opened, torch_engine)


class NativeRunner:
    """Advances hypotheses with the native library, for searches that are driven from Python."""

    def __init__(self, opened: OpenedModel) -> None:
        self._opened = opened
        self.program = describe_program(opened)

    def encode(self, sources: Mapping[str, np.ndarray]) -> Encoded:
        """Encode one source without padding."""
        from dragoman.program.reference import Encoded

        program, encoded = self.program, self._opened.encode([sources])
        return Encoded(
            {name: array[0] for name, array in zip(program.fixed, encoded.fixed, strict=True)},
            {slot.name: array[0] for slot, array in zip(program.slots, encoded.slots, strict=True)},
            int(encoded.lengths[0]) if program.states else 0,
            int(encoded.position[0]),
            None if encoded.ctc is None else encoded.ctc[0],
            encoded.summary,
        )

    def advance(
        self,
        tokens: np.ndarray,
        positions: np.ndarray,
        fixed: Mapping[str, np.ndarray],
        mask: np.ndarray,
        slots: Mapping[str, np.ndarray],
        past: np.ndarray,
    ) -> RowsAdvanced:
        """Advance N rows by one token each; the k = N / B rows of a source are side by side."""
        from dragoman.inference.engine.programs import RowsAdvanced

        program, count = self.program, len(tokens)
        lengths = mask.sum(1) if program.states else np.ones(len(mask), np.int64)
        cached = past.sum(1)
        # the library wants the real rows of a cache first; what is appended later goes behind the padding
        order = np.argsort(~past, axis=1, kind="stable")[:, :, None]
        held = [
            np.take_along_axis(slots[slot.name], order, axis=1) if slot.grows else slots[slot.name]
            for slot in program.slots
        ]
        source = np.arange(count) // max(1, count // len(mask))
        # The library wants values as long as the longest source, and long sources leave while a search runs.
        longest, states = int(lengths.max()), mask.shape[1]
        arrays = [
            fixed[name][:, :longest] if follows else fixed[name]
            for name, follows in zip(program.fixed, self._opened.follows_states, strict=True)
        ]
        held = [array if slot.width else array[:, :, :longest] for slot, array in zip(program.slots, held, strict=True)]
        advanced = self._opened.step(tokens, source, lengths, arrays, held, positions, cached, attention=True)
        ends = {}
        for slot, array in zip(program.slots, advanced.slots, strict=True):
            if slot.grows:
                ends[slot.name] = array[np.arange(count), cached][:, None]
            else:
                ends[slot.name] = array if slot.width else _widen(array, states)
        attention = None if advanced.attention is None else _widen(advanced.attention, states)
        return RowsAdvanced(advanced.log_probs, attention, ends)


def _widen(array: np.ndarray, states: int) -> np.ndarray:
    """Return an array of three axes with zeros after its last columns, one column for each of ``states``."""
    return np.pad(array, ((0, 0), (0, 0), (0, states - array.shape[2])))


def describe_program(opened: OpenedModel) -> Program:
    """Return the program of an opened model without its operations and weights."""
    return Program(
        opened.vocabulary,
        tuple(Source(*form) for form in opened.sources),
        (),
        tuple(f"fixed.{index}" for index in range(opened.fixed_count)),
        tuple(
            Slot(f"slot.{index}", form.width, form.rows, "", "", form.grows) for index, form in enumerate(opened.slots)
        ),
        (),
        logits="logits",
        attention=("attention",) if opened.maps else (),
        states="states" if opened.has_states else "",
        begin="",
        ctc="ctc" if opened.has_ctc else "",
        summary="summary" if opened.summary_width else "",
        weights={},
    )


def _as_result(found: NativeResult, prefix: tuple[int, ...]) -> Result:
    """Return a result of the library as one of ``dragoman.search``."""
    hypotheses = tuple(
        Hypothesis(
            tuple(each.tokens.tolist()),
            tuple(each.log_probs.tolist()),
            each.score,
            each.finished,
            tuple(each.path.tolist()),
            each.attention,
        )
        for each in found.hypotheses
    )
    steps = tuple(
        Frontier(step.parent, step.token, step.log_prob, step.total, step.fate, step.attention) for step in found.steps
    )
    return Result(hypotheses, Trace(steps, prefix))
