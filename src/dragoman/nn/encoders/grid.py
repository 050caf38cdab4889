"""Convolutional encoder of pictures: a grid of regions, row by row, for attention (Xu et al. 2015).

The network is a small residual one that learns from scratch on a CPU, or ResNet-18 or -50 (He et
al. 2016), which may start from published weights. Position vectors tell the row and the column of
each region. The summary is the mean of the regions; a recurrent decoder makes its first state of it
(section 3.1.2).
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from dragoman.config import Section, TooLong
from dragoman.nn.blocks.layers import Dropout
from dragoman.nn.blocks.positions import sinusoids
from dragoman.nn.blocks.resnet import CompactNetwork, GroupPictureNorm, PictureNorm, ResNet
from dragoman.nn.contracts import Encoder
from dragoman.nn.lowering import LoweredMemory, Lowering
from dragoman.nn.padding import compact
from dragoman.types import Memory, Padded


class Grid(Encoder):
    """A convolutional network whose last feature map becomes the states."""

    reference = "Xu et al. 2015; He et al. 2016"
    reads = "picture"

    class Config(Section):
        network: Literal["compact", "resnet18", "resnet50"] = "compact"
        weights: str | None = None
        """A .safetensors file of pretrained ResNet weights that a new run starts from."""
        width: int = Field(256, gt=0)
        """Width of a region's vector."""
        stride: Literal[2, 4, 8, 16, 32] = 8
        """Side of a region in pixels. At least 4 for a ResNet."""
        channels: tuple[int, ...] = (32, 64, 128)
        """Channels of each stage of the compact network."""
        norm: Literal["batch", "group"] = "batch"
        """Normalisation of the compact network. group: over each picture alone."""
        positions: Literal["sinusoidal", "learned", "none"] = "sinusoidal"
        """Positions of rows and columns."""
        max_positions: int = Field(64, gt=0)
        """The most rows, and the most columns. For learned positions only."""
        dropout: float = Field(0.1, ge=0.0, lt=1.0)
        """Dropout on the regions' vectors."""

        @model_validator(mode="after")
        def _combination(self) -> Any:
            halving = self.stride.bit_length() - 1
            if self.network == "compact":
                if self.weights is not None:
                    raise ValueError("weights are published for network = 'resnet18' and 'resnet50', not for 'compact'")
                if len(self.channels) < halving or min(self.channels) < 1:
                    raise ValueError(
                        f"channels: stride = {self.stride} takes {halving} stages, each with channels, but there are "
                        f"{len(self.channels)}"
                    )
            elif self.norm == "group":
                raise ValueError(f"norm: a {self.network} has batch norm, as published; group norm is for 'compact'")
            elif self.stride < 4:
                raise ValueError(f"stride = {self.stride}: the regions of a ResNet are 4, 8, 16 or 32 pixels wide")
            if self.positions != "none" and self.width % 4:
                raise ValueError("width: must be a multiple of 4, half of it for rows and half for columns")
            return self

    def __init__(self, config: Config, *, input_width: int) -> None:
        super().__init__()
        self.width, self.stride = config.width, config.stride
        self.summary_shape = (1, 1, config.width)
        self.network: CompactNetwork | ResNet
        if config.network == "compact":
            norm = GroupPictureNorm if config.norm == "group" else PictureNorm
            self.network = CompactNetwork(input_width, config.channels, config.stride, norm)
        else:
            self.network = ResNet(config.network, input_width, config.stride)
        self.leave = nn.Linear(self.network.width, config.width)
        self.max_positions, self.positions = config.max_positions, config.positions
        self.places: nn.Parameter | None = None
        if config.positions == "learned":  # rows, then columns
            self.places = nn.Parameter(torch.randn(2, config.max_positions, config.width // 2) * config.width**-0.5)
        self.dropout = Dropout(config.dropout)
        self.weights = config.weights

    @property
    def pretrained(self) -> tuple[str, nn.Module] | None:
        return None if self.weights is None else (self.weights, self.network)

    def forward(self, source: Padded) -> Memory:
        """Encode pictures (B, H, W, input_width) into regions (B, rows * columns, D)."""
        mask = None if bool(source.mask.all()) else source.mask
        real = source.data * source.mask[..., None]  # (B, H, W, C)
        features, mask = self.network(real.permute(0, 3, 1, 2), mask)
        rows, columns = features.shape[2:]
        regions = self.leave(features.permute(0, 2, 3, 1))  # (B, rows, columns, D)
        if self.positions != "none":
            regions = regions + self._positions(rows, columns, regions)
        if mask is None:
            mask = torch.ones(regions.shape[:3], dtype=torch.bool, device=regions.device)
        states, mask = compact(self.dropout(regions.flatten(1, 2)), mask.flatten(1))  # (B, S, D)
        states = states * mask[..., None]
        mean = states.sum(1) / mask.sum(1, keepdim=True)
        return Memory(states, mask, summary=mean[:, None, None])

    def lower(self, program: Lowering, x: str) -> LoweredMemory:
        regions = program.linear(self.leave, self.network.lower(program, x))
        weights = [] if self.places is None else [program.parameter(self.places)]
        states = program.add("grid", regions, weights=weights, vectors=self.positions)
        return LoweredMemory(states, self.width, summary=((program.add("mean", states),),))

    def _positions(self, rows: int, columns: int, like: Tensor) -> Tensor:
        """Return vectors (rows, columns, D): half of each tells the row, half the column."""
        half = self.width // 2
        if self.places is None:
            down, across = (sinusoids(0, count, half).to(like) for count in (rows, columns))
        else:
            if max(rows, columns) > self.max_positions:
                raise TooLong(
                    f"a picture of {rows} rows and {columns} columns of regions is larger than max_positions = "
                    f"{self.max_positions}; raise it, make pictures smaller (source.size), or use positions = "
                    "'sinusoidal'"
                )
            down, across = self.places[0, :rows], self.places[1, :columns]
        return torch.cat([down[:, None].expand(-1, columns, -1), across.expand(rows, -1, -1)], -1)
