"""Several sources as one memory: their states behind each other, each with a learned mark of the source it is from.

Attention treats states as a set, so what lets it tell a question from a story is the mark, as segment vectors do
(Devlin et al. 2019, section 3). Decoders that start from a summary get every source's.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from dragoman.contracts import Encoder
from dragoman.nn.layers import compact
from dragoman.types import Memory

MARK = 0.02  # standard deviation of a fresh mark: small beside states


class Joined(nn.Module):
    """Of sources by name, in their order. States take the width of the widest encoder."""

    def __init__(self, encoders: Mapping[str, Encoder]) -> None:
        super().__init__()
        self.width = max(encoder.width for encoder in encoders.values())
        self.widen = nn.ModuleDict(
            {name: nn.Linear(one.width, self.width) for name, one in encoders.items() if one.width != self.width}
        )
        self.marks = nn.ParameterDict(
            {name: nn.Parameter(torch.empty(self.width).normal_(std=MARK)) for name in encoders}
        )
        shapes = [encoder.summary_shape for encoder in encoders.values()]
        forms = {None if shape is None else shape[:2] for shape in shapes}
        self.summarize = nn.ModuleDict()
        if len(forms) == 1 and None not in forms:  # as many layers and parts everywhere: side by side
            layers, parts = next(form for form in forms if form is not None)
            self.summary_shape = (layers, parts, sum(shape[2] for shape in shapes if shape is not None))
        else:
            self.summary_shape = (1, 1, sum(encoder.width for encoder in encoders.values()))
            for name, one in encoders.items():
                layers, parts, width = one.summary_shape or (1, 1, one.width)
                self.summarize[name] = nn.Linear(layers * parts * width, one.width)

    def forward(self, memories: Mapping[str, Memory]) -> Memory:
        mask = torch.cat([memory.mask for memory in memories.values()], 1)
        states, real = compact(torch.cat([self._marked(n, m.states) for n, m in memories.items()], 1), mask)
        values = None
        if any(memory.values is not None for memory in memories.values()):
            given = [self._marked(n, m.states if m.values is None else m.values) for n, m in memories.items()]
            values, _ = compact(torch.cat(given, 1), mask)
        return Memory(states, real, values, torch.cat([self._summary(n, m) for n, m in memories.items()], -1))

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
