"""Sequences of numbers in: frames of video, sensors, cepstra. An array (T, D) a file, or a slice of a large one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from dragoman.contracts import Modality
from dragoman.data.media import MediaError, named, probe
from dragoman.data.media import features as reader
from dragoman.modalities._frames import (
    SAMPLE,
    FramesConfig,
    FramesFrontend,
    Statistics,
    evenly,
    pad_frames,
    read_record,
    statistics_of,
    write_record,
)
from dragoman.types import Axis, Padded

REACH = 2  # frames to each side that a slope is taken over


class Features(Modality):
    is_file = True

    class Config(FramesConfig):
        normalise: Literal["none", "utterance", "global"] = "global"  # whose mean and deviation are taken out
        deltas: int = Field(0, ge=0, le=2)  # 1 appends how each feature changes, 2 how its change changes too
        stack: int = Field(1, gt=0)  # frames that are joined to one position
        stride: int = Field(1, gt=0)  # frames from position to position

    def __init__(self, config: Config, features: int, overall: Statistics | None = None) -> None:
        self.config, self.features, self.overall = config, features, overall
        self.width = features * (1 + config.deltas) * config.stack

    @classmethod
    def fit(cls, config: Any, raw: Sequence[str], name: str) -> Features:
        with named(raw[0]):
            fitted = cls(config, probe(raw[0], "features").features)
        if config.normalise == "global":
            fitted.overall = statistics_of(evenly(raw, SAMPLE), fitted.frames)
        return fitted

    @property
    def notes(self) -> list[str]:
        if self.width == self.features and self.config.stride == 1:
            return []
        return [f"features: {self.features} a frame, {self.width} a position, one every {self.config.stride} frames"]

    def frames(self, raw: str) -> Tensor:
        """(T, D) as they are in the file, which is never empty."""
        frames = torch.from_numpy(reader.read(raw))
        if frames.shape[1] != self.features:
            raise MediaError(
                f"{frames.shape[1]} features a frame, but the training data has {self.features}", "wrong_shape"
            )
        return frames

    def tensor(self, raw: str) -> Tensor:
        return self._positions(self.frames(raw))

    def augmented(self, raw: str, chance: np.random.Generator) -> Tensor:
        return self._positions(at_speed(self.frames(raw), self.config.draw_speed(chance)))

    @property
    def varies(self) -> bool:
        return self.config.changes_speed

    def _positions(self, frames: Tensor) -> Tensor:
        if self.config.normalise != "none":
            frames = (self.overall or Statistics.of([frames])).normalised(frames)
        orders = [frames]
        for _ in range(self.config.deltas):
            orders.append(slopes(orders[-1]))
        return stacked(torch.cat(orders, 1), self.config.stack, self.config.stride)

    def length(self, raw: str) -> int:
        return -(-probe(raw, "features").frames // self.config.stride)

    def collate(self, tensors: Sequence[Tensor]) -> Padded:
        return pad_frames(tensors)

    def frontend(self) -> FramesFrontend:
        return FramesFrontend(self.width, self.config)

    def axis(self, raw: str, stride: int = 1) -> Axis:
        count = -(-self.length(raw) // stride)
        return Axis("features", tuple(str(index * stride * self.config.stride) for index in range(count)))

    def save(self, folder: Path, name: str) -> None:
        overall = None if self.overall is None else self.overall.to_json()
        write_record(folder, name, {"kind": "features", "features": self.features, "overall": overall})

    @classmethod
    def load(cls, config: Any, folder: Path, name: str) -> Features:
        def made(record: dict[str, Any]) -> Features:
            overall = None if record["overall"] is None else Statistics.from_json(record["overall"])
            return cls(config, int(record["features"]), overall)

        return read_record(folder, name, made)


def at_speed(frames: Tensor, speed: float) -> Tensor:
    """(T, D) → (about T / speed, D): read off the straight lines between frames, the first and last as they were."""
    if speed == 1.0 or len(frames) == 1:
        return frames
    count = max(2, round(len(frames) / speed))
    return nn.functional.interpolate(frames.T[None], count, mode="linear", align_corners=True)[0].T.contiguous()


def slopes(frames: Tensor) -> Tensor:
    """(T, D) → (T, D): the regression line's slope around each frame (Young et al. 2006, eq. 5.16); ends are repeated.

    Σ_n n (x_{t+n} - x_{t-n}) / 2 Σ_n n², n up to 2.
    """
    last = len(frames) - 1
    times = torch.arange(len(frames))
    total = torch.zeros_like(frames)
    for n in range(1, REACH + 1):
        total += n * (frames[(times + n).clamp_max(last)] - frames[(times - n).clamp_min(0)])
    return total / (2 * sum(n * n for n in range(1, REACH + 1)))


def stacked(frames: Tensor, stack: int, stride: int) -> Tensor:
    """(T, D) → (ceil(T / stride), stack * D): position i holds the frames from i * stride on, the last one repeated."""
    if stack == stride == 1:
        return frames
    starts = torch.arange(0, len(frames), stride)
    picked = (starts[:, None] + torch.arange(stack)).clamp_max(len(frames) - 1)
    return frames[picked].flatten(1)
