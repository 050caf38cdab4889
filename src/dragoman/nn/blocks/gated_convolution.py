"""Gated convolutions, and norms over real positions (Gehring et al. 2017, section 3.2)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from dragoman.nn import kernels
from dragoman.nn.lowering import Lowering

SQRT_HALF = math.sqrt(0.5)  # keeps the variance of a sum of two terms (section 3.5)
NormKind = Literal["none", "layer", "batch"]


class MaskedBatchNorm(nn.Module):
    """Batch norm (Ioffe & Szegedy 2015) whose statistics count real positions only."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Normalise the real positions of x (B, S, D), mask (B, S); padding becomes zero."""
        real = x[mask]  # (positions, D)
        if self.training and len(real) < 2:  # a single position has no variance: use the running statistics
            norm = self.norm
            real = nn.functional.batch_norm(
                real, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps
            )
        else:
            real = self.norm(real)
        return torch.zeros_like(x).index_put((mask,), real.to(x.dtype))


class Norm(nn.Module):
    """Layer norm, batch norm over real positions, or none."""

    def __init__(self, kind: NormKind, width: int) -> None:
        super().__init__()
        self.layer = nn.LayerNorm(width) if kind == "layer" else None
        self.batch = MaskedBatchNorm(width) if kind == "batch" else None

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Normalise x (B, S, D), mask (B, S)."""
        if self.layer is not None:
            return self.layer(x)
        return x if self.batch is None else self.batch(x, mask)

    def lower(self, program: Lowering, x: str) -> str:
        """Add the operations for x (S, D)."""
        if self.layer is not None:
            return program.layer_norm(self.layer, x)
        return x if self.batch is None else program.batch_norm(self.batch.norm, x)


class GatedConvolution(nn.Module):
    """GLU(conv(x)): half of the channels gate the other half.

    The caller pads, with zeros or with earlier inputs.
    """

    def __init__(self, width: int, kernel: int) -> None:
        super().__init__()
        self.convolve = nn.Conv1d(width, 2 * width, kernel)
        nn.init.normal_(self.convolve.weight, std=math.sqrt(4.0 / (kernel * width)) * 0.5)
        nn.init.zeros_(self.convolve.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Convolve (B, S + kernel - 1, D) to (B, S, D)."""
        if not torch.is_grad_enabled():  # a product of matrices, which is faster than torch's convolution
            weight = self.convolve.weight.flatten(1)  # (2 D, D * kernel)
            windows = x.unfold(1, self.convolve.kernel_size[0], 1).flatten(2)  # (B, S, D * kernel)
            return nn.functional.glu(kernels.linear(windows, weight, self.convolve.bias))
        return nn.functional.glu(self.convolve(x.transpose(1, 2)), dim=1).transpose(1, 2)

    def lower(self, program: Lowering, x: str, reach: int = 0) -> str:
        """Add the operation for x (n, D), with ``reach`` zeros at either end."""
        return program.convolution(self.convolve, x, before=reach, after=reach, activation="glu")
