"""Convolutions of stride 2 that shorten a sequence before another encoder reads it, as for sound.

Each layer is a gated convolution of stride 2 (Synnaeve et al. 2020, section 3.2; also in front of
the Transformers of Wang et al. 2020). Padding is zero, like the positions beyond the edges, so a
row of S positions becomes one of ceil(S / 2) whatever follows it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator
from torch import Tensor, nn

from dragoman.config import ConfigError, Section
from dragoman.nn.blocks.layers import Dropout
from dragoman.nn.contracts import Encoder
from dragoman.nn.lowering import LoweredMemory, Lowering
from dragoman.parts import kind_of, parse, part
from dragoman.types import Memory, Padded

InnerConfig = Annotated[SerializeAsAny[Section], BeforeValidator(lambda value: parse("encoder", value))]


class Subsampled(Encoder):
    """Strided convolutions below an inner encoder of any kind."""

    reference = "Synnaeve et al. 2020; Wang et al. 2020"

    class Config(Section):
        width: int = Field(256, gt=0)
        """Width of the vectors that the inner encoder reads."""
        layers: int = Field(2, gt=0)
        """Number of convolutions. Each halves the length."""
        kernel: int = Field(3, gt=0)
        """Width of the convolution. Odd, so that it sees as many positions on both sides."""
        dropout: float = Field(0.0, ge=0.0, lt=1.0)
        """Dropout on the vectors that the inner encoder reads."""
        inner: InnerConfig = Field(default={"kind": "transformer"}, validate_default=True)
        """The encoder that reads the shortened sequence."""

        @field_validator("kernel")
        @classmethod
        def _odd(cls, kernel: int) -> int:
            if kernel % 2 == 0 or kernel == 1:
                raise ValueError("must be odd and at least 3, so that no frame is passed over")
            return kernel

    def __init__(self, config: Config, *, input_width: int) -> None:
        super().__init__()
        build = part("encoder", kind_of(config.inner))
        if build.reads != "sequence":
            raise ConfigError(f"encoder.inner = {kind_of(config.inner)!r} reads pictures, not sequences")
        widths = [input_width] + [config.width] * (config.layers - 1)
        self.layers = nn.ModuleList(_Halving(width, config.width, config.kernel) for width in widths)
        self.dropout = Dropout(config.dropout)
        self.inner: Encoder = build(config.inner, input_width=config.width)
        self.width, self.summary_shape = self.inner.width, self.inner.summary_shape
        self.stride = 2**config.layers * self.inner.stride
        self.longest = None if self.inner.longest is None else 2**config.layers * self.inner.longest
        self.self_attention_shape = self.inner.self_attention_shape

    def forward(self, source: Padded) -> Memory:
        """Encode ``source`` (B, S, input_width)."""
        return self.inner(self._shorten(source))

    def self_attention(self, source: Padded) -> Tensor | None:
        """Return the inner encoder's self-attention, over the shortened sequence."""
        return self.inner.self_attention(self._shorten(source))

    def lower(self, program: Lowering, x: str) -> LoweredMemory:
        for layer in self.layers:
            x = layer.lower(program, x)  # type: ignore[operator]
        return self.inner.lower(program, x)

    def _shorten(self, source: Padded) -> Padded:
        x, mask = source.data, source.mask
        for layer in self.layers:
            x = layer(x.masked_fill(~mask[:, :, None], 0.0))
            mask = mask[:, ::2]  # position i is centred on 2 i, and real if that is
        return Padded(self.dropout(x), mask)


class _Halving(nn.Module):
    """A gated convolution of stride 2: (B, S, D) → (B, ceil(S / 2), width)."""

    def __init__(self, input_width: int, width: int, kernel: int) -> None:
        super().__init__()
        self.convolve = nn.Conv1d(input_width, 2 * width, kernel, stride=2, padding=kernel // 2)
        nn.init.xavier_uniform_(self.convolve.weight)
        nn.init.zeros_(self.convolve.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        """Convolve x (B, S, D)."""
        return nn.functional.glu(self.convolve(x.transpose(1, 2)), dim=1).transpose(1, 2)

    def lower(self, program: Lowering, x: str) -> str:
        """Add the operation for x (S, D)."""
        reach = self.convolve.kernel_size[0] // 2
        return program.convolution(self.convolve, x, stride=2, before=reach, after=reach, activation="glu")
