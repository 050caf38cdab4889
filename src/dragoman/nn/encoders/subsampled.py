"""Convolutions that halve time, under any other encoder of sequences: sound has more frames than anybody needs.

Each layer is a gated convolution of stride 2 (Synnaeve et al. 2020, section 3.2; the front of the Transformers of Wang
et al. 2020). It sees zeros on padding, as beyond the edges, so a row of S positions becomes ceil(S / 2) whatever
follows it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator
from torch import Tensor, nn

from dragoman.config import ConfigError, Section
from dragoman.contracts import Encoder
from dragoman.nn.layers import Dropout
from dragoman.parts import kind_of, parse, part
from dragoman.types import Memory, Padded

InnerConfig = Annotated[SerializeAsAny[Section], BeforeValidator(lambda value: parse("encoder", value))]


class Subsampled(Encoder):
    reference = "Synnaeve et al. 2020; Wang et al. 2020"

    class Config(Section):
        width: int = Field(256, gt=0)  # of what the inner encoder reads
        layers: int = Field(2, gt=0)  # each halves time
        kernel: int = Field(3, gt=0)  # odd: as far to the left as to the right
        dropout: float = Field(0.0, ge=0.0, lt=1.0)  # of what the inner encoder reads
        inner: InnerConfig = Field(default={"kind": "transformer"}, validate_default=True)

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

    def forward(self, source: Padded) -> Memory:
        return self.inner(self._front(source))

    def self_attention(self, source: Padded) -> Tensor | None:
        return self.inner.self_attention(self._front(source))

    def _front(self, source: Padded) -> Padded:
        x, mask = source.data, source.mask
        for layer in self.layers:
            x = layer(x.masked_fill(~mask[:, :, None], 0.0))
            mask = mask[:, ::2]  # position i looks around 2 i, and is real if that is
        return Padded(self.dropout(x), mask)


class _Halving(nn.Module):
    """GLU(conv(x)) of stride 2: (B, S, D) → (B, ceil(S / 2), width)."""

    def __init__(self, input_width: int, width: int, kernel: int) -> None:
        super().__init__()
        self.convolve = nn.Conv1d(input_width, 2 * width, kernel, stride=2, padding=kernel // 2)
        nn.init.xavier_uniform_(self.convolve.weight)
        nn.init.zeros_(self.convolve.bias)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.glu(self.convolve(x.transpose(1, 2)), dim=1).transpose(1, 2)
