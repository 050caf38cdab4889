"""Convolutional encoder: gated convolutions with residuals and positions (Gehring et al. 2017).

Attention compares with the states z and averages z + e, the states together with the inputs
(section 3.3), so keys and values of the memory differ. The summary is the mean of the states.
"""

from __future__ import annotations

from pydantic import Field, field_validator
from torch import nn

from dragoman.config import Section
from dragoman.nn.blocks.gated_convolution import SQRT_HALF, GatedConvolution, Norm, NormKind
from dragoman.nn.blocks.layers import Dropout, InferenceLinear
from dragoman.nn.blocks.positions import PositionKind, Positions
from dragoman.nn.contracts import Encoder
from dragoman.nn.lowering import LoweredMemory, Lowering
from dragoman.types import Memory, Padded


class Conv(Encoder):
    """A stack of gated convolutions."""

    reference = "Gehring et al. 2017"

    class Config(Section):
        width: int = Field(256, gt=0)
        layers: int = Field(4, gt=0)
        kernel: int = Field(3, gt=0)
        """Width of the convolution. Odd, so that it sees as many positions on both sides."""
        norm: NormKind = "none"
        positions: PositionKind = "learned"
        max_positions: int = Field(1024, gt=0)
        """Number of positions in the table. For learned positions only."""
        dropout: float = Field(0.1, ge=0.0, lt=1.0)

        @field_validator("kernel")
        @classmethod
        def _odd(cls, kernel: int) -> int:
            if kernel % 2 == 0:
                raise ValueError("must be odd, so that a position sees as far to its left as to its right")
            return kernel

    def __init__(self, config: Config, *, input_width: int) -> None:
        super().__init__()
        self.width = config.width
        self.summary_shape = (1, 1, config.width)
        self.reach = config.kernel // 2
        self.positions = Positions(config.positions, input_width, config.max_positions)
        self.longest = self.positions.longest
        self.enter = InferenceLinear(input_width, config.width)
        self.layers = nn.ModuleList(GatedConvolution(config.width, config.kernel) for _ in range(config.layers))
        self.norms = nn.ModuleList(Norm(config.norm, config.width) for _ in range(config.layers))
        self.dropout = Dropout(config.dropout)

    def forward(self, source: Padded) -> Memory:
        """Encode ``source`` (B, S, input_width)."""
        real = source.mask[:, :, None].to(source.data.dtype)
        embedded = source.data + self.positions.of(source, source.data)
        first = self.enter(self.dropout(embedded)) * real  # (B, S, D)
        x = first
        for layer, norm in zip(self.layers, self.norms, strict=True):
            wide = nn.functional.pad(self.dropout(x), (0, 0, self.reach, self.reach))
            x = norm((layer(wide) + x) * SQRT_HALF, source.mask) * real  # padding stays zero
        mean = x.sum(1) / real.sum(1)
        return Memory(x, source.mask, values=(x + first) * SQRT_HALF, summary=mean[:, None, None])

    def lower(self, program: Lowering, x: str) -> LoweredMemory:
        x = first = program.linear(self.enter, self.positions.lower(program, x, program.counted.get(x)))
        for layer, norm in zip(self.layers, self.norms, strict=True):
            convolved = layer.lower(program, x, self.reach)  # type: ignore[operator]
            x = norm.lower(program, program.add("add", convolved, x, factor=SQRT_HALF))  # type: ignore[operator]
        values = program.add("add", x, first, factor=SQRT_HALF)
        return LoweredMemory(x, self.width, values, summary=((program.add("mean", x),),))
