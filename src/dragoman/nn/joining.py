"""Several sources as one memory: their states behind each other, each with a learned mark of the source it is from.

Attention treats states as a set, so what lets it tell a question from a story is the mark, as segment vectors do
(Devlin et al. 2019, section 3). Decoders that start from a summary get every source's.

Up to here no source knows of the others. A joint encoder reads the joined states once more, so that what a story's word
means can depend on the question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import torch
from torch import Tensor, nn

from dragoman.contracts import Encoder
from dragoman.nn.layers import compact
from dragoman.types import Memory, Padded

MARK = 0.02  # standard deviation of a fresh mark: small beside states


class Joined(nn.Module):
    """Of sources by name, in their order. States take the width of the widest encoder, or that of the joint one."""

    def __init__(self, encoders: Mapping[str, Encoder], make_joint: Callable[[int], Encoder] | None = None) -> None:
        """``make_joint``: the encoder of all sources together, for inputs of a given width."""
        super().__init__()
        inner = max(encoder.width for encoder in encoders.values())
        self.widen = nn.ModuleDict(
            {name: nn.Linear(one.width, inner) for name, one in encoders.items() if one.width != inner}
        )
        self.marks = nn.ParameterDict({name: nn.Parameter(torch.empty(inner).normal_(std=MARK)) for name in encoders})
        self.joint = None if make_joint is None else make_joint(inner)
        self.width = inner if self.joint is None else self.joint.width
        self.summarize = nn.ModuleDict()
        if self.joint is not None and self.joint.summary_shape is not None:
            self.summary_shape = self.joint.summary_shape
            return
        shapes = [encoder.summary_shape for encoder in encoders.values()]
        forms = {None if shape is None else shape[:2] for shape in shapes}
        if len(forms) == 1 and None not in forms:  # as many layers and parts everywhere: side by side
            layers, parts = next(form for form in forms if form is not None)
            self.summary_shape = (layers, parts, sum(shape[2] for shape in shapes if shape is not None))
        else:
            self.summary_shape = (1, 1, sum(encoder.width for encoder in encoders.values()))
            for name, one in encoders.items():
                layers, parts, width = one.summary_shape or (1, 1, one.width)
                self.summarize[name] = nn.Linear(layers * parts * width, one.width)

    def forward(self, memories: Mapping[str, Memory]) -> Memory:
        source = self.side_by_side(memories)
        if self.joint is not None:
            memory: Memory = self.joint(source)
            return memory if memory.summary is not None else replace(memory, summary=self._summaries(memories))
        values = None
        if any(memory.values is not None for memory in memories.values()):
            given = [self._marked(n, m.states if m.values is None else m.values) for n, m in memories.items()]
            values, _ = compact(torch.cat(given, 1), torch.cat([memory.mask for memory in memories.values()], 1))
        return Memory(source.data, source.mask, values, self._summaries(memories))

    def side_by_side(self, memories: Mapping[str, Memory]) -> Padded:
        """(B, S, D): the states of all sources, marked, real ones first."""
        mask = torch.cat([memory.mask for memory in memories.values()], 1)
        return Padded(*compact(torch.cat([self._marked(n, m.states) for n, m in memories.items()], 1), mask))

    def _summaries(self, memories: Mapping[str, Memory]) -> Tensor:
        return torch.cat([self._summary(n, m) for n, m in memories.items()], -1)

    def _marked(self, name: str, vectors: Tensor) -> Tensor:
        wide = self.widen[name](vectors) if name in self.widen else vectors
        return wide + self.marks[name]  # (B, S, D)

    def _summary(self, name: str, memory: Memory) -> Tensor:
        """(B, L, P, D); of a source that has none, the mean of its states stands in, so that none is lost."""
        summary = memory.summary
        if name not in self.summarize:
            assert summary is not None
            return summary
        if summary is None:
            share = memory.mask[..., None].to(memory.states.dtype)
            summary = ((memory.states * share).sum(1) / share.sum(1))[:, None, None]
        return torch.tanh(self.summarize[name](summary.flatten(1)))[:, None, None]
