"""No encoder: the states are the source's vectors.

It is for a decoder that reads the source itself, or a baseline.
"""

from __future__ import annotations

from dragoman.config import Section
from dragoman.nn.contracts import Encoder
from dragoman.nn.lowering import LoweredMemory, Lowering
from dragoman.types import Memory, Padded


class Identity(Encoder):
    """Passes the vectors on unchanged."""

    reference = "Liu et al. 2018, section 4.2.3: a network without an encoder"

    class Config(Section):
        pass

    def __init__(self, config: Config, *, input_width: int) -> None:
        super().__init__()
        self.width = input_width
        self.summary_shape = None

    def forward(self, source: Padded) -> Memory:
        """Return the vectors of ``source`` as states."""
        return Memory(source.data, source.mask)

    def lower(self, program: Lowering, x: str) -> LoweredMemory:
        return LoweredMemory(x, self.width)
