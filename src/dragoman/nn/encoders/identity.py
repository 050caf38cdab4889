"""No encoder: the source's vectors as they are. For a decoder that reads the source itself, or as a baseline."""

from __future__ import annotations

from dragoman.config import Section
from dragoman.contracts import Encoder
from dragoman.types import Memory, Padded


class Identity(Encoder):
    reference = "Liu et al. 2018, section 4.2.3: a network without an encoder"

    class Config(Section):
        pass

    def __init__(self, config: Config, *, input_width: int) -> None:
        super().__init__()
        self.width = input_width
        self.summary_shape = None

    def forward(self, source: Padded) -> Memory:
        return Memory(source.data, source.mask)
