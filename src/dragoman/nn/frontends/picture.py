"""Pixels (B, H, W, C), normalised by the mean and standard deviation of each channel."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from dragoman.nn.contracts import Frontend
from dragoman.nn.lowering import Lowering, to_array
from dragoman.program.table import Source
from dragoman.types import Padded


class PictureFrontend(Frontend):
    def __init__(self, mean: Sequence[float], deviation: Sequence[float]) -> None:
        """``mean`` and ``deviation``: of each channel, from 0 (black) to 1 (white)."""
        super().__init__()
        self.width = len(mean)
        # not persistent: the modality saves them
        self.register_buffer("mean", torch.tensor(mean) * 255, persistent=False)
        self.register_buffer("deviation", torch.tensor(deviation) * 255, persistent=False)

    def forward(self, source: Padded) -> Padded:
        normal = (source.data.to(self.mean.dtype) - self.mean) / self.deviation  # type: ignore[operator, arg-type]
        return Padded(normal * source.mask[..., None], source.mask)

    def lower(self, program: Lowering, name: str) -> str:
        pixels = program.source(Source(name, "picture", self.width))
        mean, deviation = to_array(self.mean), to_array(self.deviation)  # type: ignore[arg-type]
        weights = [
            program.weight(f"frontends.{name}.scale", 1 / deviation),
            program.weight(f"frontends.{name}.shift", -mean / deviation),
        ]
        return program.add("affine", pixels, weights=weights)
