"""Frames, in training with masks over time and features (SpecAugment, Park et al. 2019)."""

from __future__ import annotations

import torch
from torch import Tensor

from dragoman.nn.contracts import Frontend
from dragoman.nn.lowering import Lowering
from dragoman.process.generators import current_generator
from dragoman.program.table import Source
from dragoman.types import Padded


class FramesFrontend(Frontend):
    """0 is the mean of normalised features, so a masked frame says nothing."""

    def __init__(
        self, width: int, time_masks: int, time_width: float, feature_masks: int, feature_width: float
    ) -> None:
        """``time_width``, ``feature_width``: the widest mask, as a share of the whole."""
        super().__init__()
        self.width = width
        self.time_masks, self.time_width = time_masks, time_width
        self.feature_masks, self.feature_width = feature_masks, feature_width

    def forward(self, source: Padded) -> Padded:
        if not self.training:
            return source
        data = source.data  # (B, S, D)
        lengths = source.mask.sum(1)
        for _ in range(self.time_masks):
            data = data.masked_fill(_stripe(lengths, data.shape[1], self.time_width)[:, :, None], 0.0)
        widths = torch.full_like(lengths, data.shape[2])
        for _ in range(self.feature_masks):
            data = data.masked_fill(_stripe(widths, data.shape[2], self.feature_width)[:, None], 0.0)
        return Padded(data, source.mask)

    def lower(self, program: Lowering, name: str) -> str:
        return program.source(Source(name, "frames", self.width))


def _stripe(lengths: Tensor, longest: int, share: float) -> Tensor:
    """Return (B, longest): True in one random stripe of each row, up to ``share`` of it wide."""
    drawn = torch.rand(2, len(lengths), device=lengths.device, generator=current_generator())
    width = (drawn[0] * ((share * lengths).long() + 1)).long()  # every width is equally likely
    begin = (drawn[1] * (lengths - width + 1)).long()
    positions = torch.arange(longest, device=lengths.device)
    return (positions >= begin[:, None]) & (positions < (begin + width)[:, None])
