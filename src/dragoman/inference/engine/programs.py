"""Programs as decoders: whatever runs a program can be searched like a model.

A runner encodes one source at a time and advances padded rows. ``Reference`` (numpy) is the plainest;
ONNX Runtime is another. The state of a hypothesis is in the carry of a ``State``, so every search,
rule, ensemble and fusion works.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from dragoman.data.vocabulary import BLANK, BOS, EOS
from dragoman.errors import UserError
from dragoman.inference.engine.contract import Arrays, SelfAttention, label_log_probs, missing_ctc
from dragoman.inference.engine.single import Inputs, SingleEngine
from dragoman.program.reference import Encoded, Reference
from dragoman.program.table import Program
from dragoman.search.ctc_prefix import CTCPrefix
from dragoman.search.rows import SearchDecoder
from dragoman.types import State, Tree


@dataclass(frozen=True, slots=True)
class RowsAdvanced:
    """What N rows are after one more token."""

    logits: np.ndarray  # (N, V)
    attention: np.ndarray | None  # (N, A, S)
    ends: Mapping[str, np.ndarray]  # by slot: what replaces it, or is appended, (N, rows, width)


class Runner(Protocol):
    """Runs a program."""

    program: Program

    def encode(self, sources: Mapping[str, np.ndarray]) -> Encoded:
        """Encode one source without padding."""

    def advance(
        self,
        tokens: np.ndarray,  # (N,)
        positions: np.ndarray,  # (N,)
        fixed: Mapping[str, np.ndarray],  # (B, rows, width)
        mask: np.ndarray,  # (B, S) which source states are real
        slots: Mapping[str, np.ndarray],  # (N, rows, width)
        past: np.ndarray,  # (N, P) which rows of growing slots are real
    ) -> RowsAdvanced:
        """Advance N rows by one token each; the k = N / B rows of a source are side by side."""


@dataclass(frozen=True, slots=True)
class ProgramMemory:
    """The encoded sources of a batch, padded."""

    fixed: Mapping[str, Tensor]  # (B, rows, width)
    slots: Mapping[str, Tensor]  # (B, rows, width)
    mask: Tensor  # (B, S)
    past: Tensor  # (B, P)
    position: Tensor  # (B,) of the first token
    ctc: Tensor | None  # (B, S, V) logits
    summary: np.ndarray | None  # (B, D)

    @property
    def states(self) -> Tensor:
        """What CTC reads: its logits, which the program has computed."""
        assert self.ctc is not None
        return self.ctc


@dataclass(frozen=True, slots=True)
class ProgramStep:
    """What a search reads of a step."""

    logits: Tensor  # (N, T, V)
    state: State
    attention: Tensor | None  # (N, T, A, S)

    @property
    def log_probs(self) -> Tensor:
        """The log-probabilities of every token."""
        return self.logits.log_softmax(-1)

    def next_log_probs(self) -> Tensor:
        """Return the log-probabilities after the last token, (N, V), as a new tensor that may be changed."""
        return self.logits[:, -1].log_softmax(-1)


class ProgramDecoder:
    """A program that is searched as a decoder is."""

    def __init__(self, runner: Runner) -> None:
        self.runner = runner

    def encode(self, rows: Sequence[Mapping[str, np.ndarray]]) -> ProgramMemory:
        """Encode the sources of a batch, one by one, and pad the results."""
        program = self.runner.program
        encoded = [self.runner.encode(row) for row in rows]
        growing = next((slot.name for slot in program.slots if slot.grows), None)
        lengths = [len(each.slots[growing]) if growing else 0 for each in encoded]
        states = [each.states for each in encoded]
        ctc = [each.ctc for each in encoded if each.ctc is not None]
        summaries = [each.summary for each in encoded if each.summary is not None]
        return ProgramMemory(
            {name: pad([each.fixed[name] for each in encoded]) for name in program.fixed},
            {slot.name: pad([each.slots[slot.name] for each in encoded]) for slot in program.slots},
            _mask(states),
            _mask(lengths),
            torch.tensor([each.position for each in encoded]),
            pad(ctc) if ctc else None,
            np.concatenate(summaries) if summaries else None,
        )

    def start(self, memory: ProgramMemory | None, sources: int) -> State:
        """Return the state before the first token."""
        memory = self.encode([{}] * sources) if memory is None else memory
        fixed: dict[str, Tree] = {"values": dict(memory.fixed), "mask": memory.mask}
        carry: dict[str, Tree] = {"slots": dict(memory.slots), "past": memory.past, "position": memory.position}
        return State(sources, fixed, carry)

    def __call__(self, tokens: Tensor, state: State, need_attention: bool = False) -> ProgramStep:
        """Advance by tokens (N, T)."""
        fixed: Any = state.fixed
        carry: Any = state.carry
        program = self.runner.program
        values = {name: tensor.numpy() for name, tensor in fixed["values"].items()}
        slots, past, position = dict(carry["slots"]), carry["past"], carry["position"]
        logits, maps = [], []
        for column in tokens.T:
            arrays = {name: tensor.numpy() for name, tensor in slots.items()}
            advanced = self.runner.advance(
                column.numpy(), position.numpy(), values, fixed["mask"].numpy(), arrays, past.numpy()
            )
            for slot in program.slots:
                end = torch.from_numpy(advanced.ends[slot.name])
                slots[slot.name] = torch.cat([slots[slot.name], end], 1) if slot.grows else end
            past = torch.nn.functional.pad(past, (0, 1), value=True)
            position = position + 1
            logits.append(torch.from_numpy(advanced.logits))
            if need_attention and advanced.attention is not None:
                maps.append(torch.from_numpy(advanced.attention))
        after = State(state.sources, fixed, {"slots": slots, "past": past, "position": position})
        return ProgramStep(torch.stack(logits, 1), after, torch.stack(maps, 1) if maps else None)


class ReferenceRunner:
    """Runs a program with numpy, row by row."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self._reference = Reference(program)

    def encode(self, sources: Mapping[str, np.ndarray]) -> Encoded:
        return self._reference.encode(sources)

    def advance(
        self,
        tokens: np.ndarray,
        positions: np.ndarray,
        fixed: Mapping[str, np.ndarray],
        mask: np.ndarray,
        slots: Mapping[str, np.ndarray],
        past: np.ndarray,
    ) -> RowsAdvanced:
        states = mask.shape[1]
        each = len(tokens) // len(mask)
        advanced = []
        for row, token in enumerate(tokens):
            source = row // each
            real = int(mask[source].sum())
            own = {name: array[source][:real] if array.shape[1] == states else array[source]
                   for name, array in fixed.items()}  # fmt: skip
            before = {}
            for slot in self.program.slots:
                array = slots[slot.name][row]
                array = array[past[row]] if slot.grows else array
                before[slot.name] = array[:, :real] if slot.width == 0 else array
            advanced.append(self._reference.step(int(token), own, before, int(positions[row])))
        ends = {}
        for slot in self.program.slots:
            arrays = [after.slots[slot.name] for after in advanced]
            ends[slot.name] = pad_arrays([array[-1:] if slot.grows else array for array in arrays], states)
        # as wide at every step, also when only short sources are left
        maps = [
            np.pad(after.attention, ((0, 0), (0, states - after.attention.shape[1])))
            for after in advanced
            if after.attention is not None
        ]
        return RowsAdvanced(np.stack([after.logits for after in advanced]), np.stack(maps) if maps else None, ends)


class ProgramEngine(SingleEngine):
    """Computes with a program in place of the model."""

    def __init__(self, inputs: Inputs, runner: Runner, name: str) -> None:
        """``name`` is that of the engine, for messages."""
        super().__init__(inputs)
        self.name = name
        self._decoder = ProgramDecoder(runner)
        self._program = runner.program
        self.has_attention = bool(self._program.attention)
        self.chunk = inputs.chunk if any(slot.grows for slot in self._program.slots) else None

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def decoder(self) -> SearchDecoder:
        return self._decoder

    def ctc_decoder(self) -> SearchDecoder:
        if not self._program.ctc:
            raise missing_ctc(self.inputs.name)
        return CTCPrefix(lambda logits: logits, blank=BLANK, bos=BOS, eos=EOS)

    @property
    def has_ctc(self) -> bool:
        return bool(self._program.ctc)

    def ctc_log_probs(self, rows: Sequence[Arrays]) -> list[np.ndarray]:
        memory = self._decoder.encode(rows)
        if memory.ctc is None:
            raise missing_ctc(self.inputs.name)
        lengths = memory.mask.sum(1).tolist()
        return [label_log_probs(row[:length].numpy()) for row, length in zip(memory.ctc, lengths, strict=True)]

    def encode(self, rows: Sequence[Arrays]) -> Any:
        return self._decoder.encode(rows) if self._program.sources else None

    def represent(self, rows: Sequence[Arrays]) -> tuple[np.ndarray, str]:
        summary = self._decoder.encode(rows).summary
        if summary is None:
            raise self._without("vectors of its inputs")
        return summary, "the encoder's summary of the source"

    def self_attention(self, row: Arrays, outputs: Sequence[Sequence[int]]) -> SelfAttention:
        raise self._without("self-attention")

    def _without(self, what: str) -> UserError:
        return UserError(f"the engine {self.name!r} does not show {what}; load the run with engine = 'torch'")


def pad(arrays: Sequence[np.ndarray]) -> Tensor:
    """Stack arrays of two axes, with zeros after the rows and columns of the shorter ones."""
    return torch.from_numpy(pad_arrays(arrays, 0))


def pad_arrays(arrays: Sequence[np.ndarray], columns: int) -> np.ndarray:
    """Stack arrays of two axes, padded with zeros; all are widened to ``columns`` where their widths differ."""
    rows = max(len(array) for array in arrays)
    widths = {array.shape[1] for array in arrays}
    width = widths.pop() if len(widths) == 1 else max(*widths, columns)
    stacked = np.zeros((len(arrays), rows, width), np.float32)
    for index, array in enumerate(arrays):
        stacked[index, : len(array), : array.shape[1]] = array
    return stacked


def _mask(lengths: Sequence[int]) -> Tensor:
    longest = max(lengths, default=0)
    return torch.arange(longest) < torch.tensor(lengths)[:, None]
