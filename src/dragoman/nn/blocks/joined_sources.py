"""Join several sources into one memory: all states in one sequence, each marked with its source.

The mark is a learned vector, one per source. Attention treats states as a set, so the mark is what
lets it tell a question from a story, as segment vectors do (Devlin et al. 2019, section 3).
Decoders that start from a summary get the summaries of all sources.

The encoder of a source sees that source alone. An optional joint encoder reads the joined states
once more, so that the meaning of a word in a story can depend on the question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from dragoman.nn.contracts import Encoder
from dragoman.nn.lowering import LoweredMemory, Lowering
from dragoman.nn.padding import compact
from dragoman.types import Memory, Padded

MARK_DEVIATION = 0.02  # standard deviation of initial marks: small compared with states


class JoinedSources(nn.Module):
    """Joins the memories of several sources, in the order of their names.

    States have the width of the widest encoder, or that of the joint encoder.
    """

    def __init__(self, encoders: Mapping[str, Encoder], make_joint: Callable[[int], Encoder] | None = None) -> None:
        """Join these encoders. ``make_joint`` builds the joint encoder for an input width."""
        super().__init__()
        inner = max(encoder.width for encoder in encoders.values())
        self.widen = nn.ModuleDict(
            {name: nn.Linear(encoder.width, inner) for name, encoder in encoders.items() if encoder.width != inner}
        )
        self.marks = nn.ParameterDict(
            {name: nn.Parameter(torch.empty(inner).normal_(std=MARK_DEVIATION)) for name in encoders}
        )
        self.joint = None if make_joint is None else make_joint(inner)
        self.width = inner if self.joint is None else self.joint.width
        self.summarize = nn.ModuleDict()
        if self.joint is not None and self.joint.summary_shape is not None:
            self.summary_shape = self.joint.summary_shape
            return
        shapes = [encoder.summary_shape for encoder in encoders.values()]
        forms = {None if shape is None else shape[:2] for shape in shapes}
        if len(forms) == 1 and None not in forms:  # the same layers and parts everywhere: concatenate the widths
            layers, parts = next(form for form in forms if form is not None)
            self.summary_shape = (layers, parts, sum(shape[2] for shape in shapes if shape is not None))
        else:
            self.summary_shape = (1, 1, sum(encoder.width for encoder in encoders.values()))
            for name, encoder in encoders.items():
                layers, parts, width = encoder.summary_shape or (1, 1, encoder.width)
                self.summarize[name] = nn.Linear(layers * parts * width, encoder.width)

    def forward(self, memories: Mapping[str, Memory]) -> Memory:
        """Join the memories of the sources into one."""
        source = self.join_states(memories)
        if self.joint is not None:
            memory: Memory = self.joint(source)
            return memory if memory.summary is not None else replace(memory, summary=self._summaries(memories))
        values = None
        if any(memory.values is not None for memory in memories.values()):
            mask = torch.cat([memory.mask for memory in memories.values()], 1)
            marked = [self._mark(n, m.states if m.values is None else m.values) for n, m in memories.items()]
            values, _ = compact(torch.cat(marked, 1), mask)
        return Memory(source.data, source.mask, values, self._summaries(memories))

    def join_states(self, memories: Mapping[str, Memory]) -> Padded:
        """Return the marked states of all sources as one sequence (B, S, D), real ones first."""
        mask = torch.cat([memory.mask for memory in memories.values()], 1)
        return Padded(*compact(torch.cat([self._mark(n, m.states) for n, m in memories.items()], 1), mask))

    def _summaries(self, memories: Mapping[str, Memory]) -> Tensor:
        return torch.cat([self._summary(n, m) for n, m in memories.items()], -1)

    def _mark(self, name: str, vectors: Tensor) -> Tensor:
        wide = self.widen[name](vectors) if name in self.widen else vectors
        return wide + self.marks[name]  # (B, S, D)

    def _summary(self, name: str, memory: Memory) -> Tensor:
        """Return the summary (B, L, P, D) of a source, or the mean of its states if it has none."""
        summary = memory.summary
        if name not in self.summarize:
            assert summary is not None
            return summary
        if summary is None:
            real = memory.mask[..., None].to(memory.states.dtype)
            summary = ((memory.states * real).sum(1) / real.sum(1))[:, None, None]
        return torch.tanh(self.summarize[name](summary.flatten(1)))[:, None, None]

    def lower(self, program: Lowering, memories: Mapping[str, LoweredMemory]) -> LoweredMemory:
        """Add the operations that join the memories of one source each."""
        states = program.add("join", *(self._lower_mark(program, n, m.states) for n, m in memories.items()))
        if self.joint is not None:
            memory = self.joint.lower(program, states)
            return memory if memory.summary else replace(memory, summary=self._lower_summaries(program, memories))
        values = None
        if any(memory.values is not None for memory in memories.values()):
            values = program.add("join", *(self._lower_mark(program, n, m.read) for n, m in memories.items()))
        return LoweredMemory(states, self.width, values, self._lower_summaries(program, memories))

    def _lower_mark(self, program: Lowering, name: str, vectors: str) -> str:
        wide = program.linear(self.widen[name], vectors) if name in self.widen else vectors
        return program.add("affine", wide, weights=["", program.parameter(self.marks[name])])

    def _lower_summaries(self, program: Lowering, memories: Mapping[str, LoweredMemory]) -> tuple[tuple[str, ...], ...]:
        summaries = [self._lower_summary(program, name, memory) for name, memory in memories.items()]
        return tuple(
            tuple(program.join_columns(parts) for parts in zip(*layers, strict=True))
            for layers in zip(*summaries, strict=True)
        )

    def _lower_summary(self, program: Lowering, name: str, memory: LoweredMemory) -> tuple[tuple[str, ...], ...]:
        summary = memory.summary
        if name not in self.summarize:
            assert summary is not None
            return summary
        if summary is None:
            summary = ((program.add("mean", memory.states),),)
        flat = program.join_columns([part for layer in summary for part in layer])
        return ((program.linear(self.summarize[name], flat, "tanh"),),)
