"""Sequences of vectors: frames of video, sensors, cepstra.

A file is an array (T, D), or many of them: then an input is a slice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from dragoman.data.media import MediaError, Probe, named
from dragoman.data.modality import Modality, pad_sequences
from dragoman.modalities import _array_reader as reader
from dragoman.modalities._frames import (
    SAMPLE,
    FeatureStatistics,
    FramesConfig,
    fit_statistics,
    read_record,
    spread_sample,
    write_record,
)
from dragoman.types import Axis, PaddedArrays

REACH = 2  # frames on each side that a slope is computed over


class Features(Modality):
    is_file = True
    is_timed = True
    frontend_kind = "frames"
    suffixes = (".npy",)
    marks = (rb"\x93NUMPY",)
    file_noun = "a feature sequence"
    file_title = "Feature sequences"
    count_titles: ClassVar = {"features": "columns"}
    uniform_count = "features"

    class Config(FramesConfig):
        normalise: Literal["none", "utterance", "global"] = "global"
        """Whose mean and standard deviation are normalised away."""
        deltas: int = Field(0, ge=0, le=2)
        """1: append the change of each feature. 2: append the change of that change too."""
        stack: int = Field(1, gt=0)
        """Number of frames joined into one position."""
        stride: int = Field(1, gt=0)
        """Number of frames from one position to the next."""

    config: Config

    def __init__(self, config: Config, features: int, overall: FeatureStatistics | None = None) -> None:
        self.config, self.features, self.overall = config, features, overall
        self.width = features * (1 + config.deltas) * config.stack

    @staticmethod
    def file_of(raw: str) -> str:
        return reader.file_of(raw)

    @classmethod
    def probe(cls, raw: str) -> Probe:
        return reader.probe(raw)

    @classmethod
    def examine(cls, raw: str) -> Probe:
        return reader.examine(raw)

    @classmethod
    def measures(cls, probe: Probe) -> Mapping[str, float]:
        return {"rows": probe.frames}

    @classmethod
    def counts(cls, probe: Probe) -> Mapping[str, int]:
        return {"features": probe.features}

    @classmethod
    def fit(cls, config: Any, raw: Sequence[str], name: str) -> Features:
        with named(raw[0]):
            fitted = cls(config, cls.probe(raw[0]).features)
        if config.normalise == "global":
            fitted.overall = fit_statistics(spread_sample(raw, SAMPLE), fitted.frames)
        return fitted

    @property
    def notes(self) -> list[str]:
        if self.width == self.features and self.config.stride == 1:
            return []
        return [f"features: {self.features} a frame, {self.width} a position, one every {self.config.stride} frames"]

    def frames(self, raw: str) -> np.ndarray:
        """Return (T, D) frames as in the file, which is never empty."""
        frames = reader.read(raw)
        if frames.shape[1] != self.features:
            raise MediaError(
                f"{frames.shape[1]} features a frame, but the training data has {self.features}", "wrong_shape"
            )
        return frames

    def array(self, raw: str) -> np.ndarray:
        return self._positions(self.frames(raw))

    def augmented(self, raw: str, generator: np.random.Generator) -> np.ndarray:
        return self._positions(at_speed(self.frames(raw), self.config.draw_speed(generator)))

    @property
    def varies(self) -> bool:
        return self.config.changes_speed

    def _positions(self, frames: np.ndarray) -> np.ndarray:
        if self.config.normalise != "none":
            frames = (self.overall or FeatureStatistics.of([frames])).normalise(frames)
        orders = [frames]
        for _ in range(self.config.deltas):
            orders.append(slopes(orders[-1]))
        return stacked(np.concatenate(orders, 1), self.config.stack, self.config.stride)

    def length(self, raw: str) -> int:
        return -(-self.probe(raw).frames // self.config.stride)

    def collate(self, arrays: Sequence[np.ndarray]) -> PaddedArrays:
        return pad_sequences(arrays)

    def frontend_options(self) -> Mapping[str, Any]:
        return self.config.frontend_options(self.width)

    def axis(self, array: np.ndarray, stride: int = 1) -> Axis:
        count, step = -(-len(array) // stride), stride * self.config.stride
        return Axis("features", tuple(str(index * step) for index in range(count)), frames=step)

    def describe_reading(self) -> Mapping[str, Any]:
        config = self.config
        return {
            "features": self.features,
            "deltas": config.deltas,
            "stack": config.stack,
            "stride": config.stride,
            "normalise": config.normalise != "none",
            "overall": None if self.overall is None else self.overall.to_json(),
        }

    def save(self, folder: Path, name: str) -> list[str]:
        overall = None if self.overall is None else self.overall.to_json()
        return write_record(folder, name, {"kind": "features", "features": self.features, "overall": overall})

    @classmethod
    def load(cls, config: Any, folder: Path, name: str) -> Features:
        def build(record: dict[str, Any]) -> Features:
            overall = None if record["overall"] is None else FeatureStatistics.from_json(record["overall"])
            return cls(config, int(record["features"]), overall)

        return read_record(folder, name, build)


def at_speed(frames: np.ndarray, speed: float) -> np.ndarray:
    """Change the speed of (T, D) to (about T / speed, D) by linear interpolation."""
    if speed == 1.0 or len(frames) == 1:
        return frames
    count = max(2, round(len(frames) / speed))
    times = np.linspace(0, len(frames) - 1, count)
    before = np.minimum(times.astype(np.int64), len(frames) - 2)
    share = (times - before).astype(np.float32)[:, None]
    interpolated: np.ndarray = (1 - share) * frames[before] + share * frames[before + 1]
    return interpolated


def slopes(frames: np.ndarray) -> np.ndarray:
    """Return (T, D) slopes of the regression line around each frame (Young et al. 2006, eq. 5.16).

    Σ_n n (x_{t+n} - x_{t-n}) / 2 Σ_n n², n up to 2; the first and last frame are repeated beyond
    the ends.
    """
    last = len(frames) - 1
    times = np.arange(len(frames))
    total = np.zeros_like(frames)
    for n in range(1, REACH + 1):
        total += n * (frames[np.minimum(times + n, last)] - frames[np.maximum(times - n, 0)])
    return total / (2 * sum(n * n for n in range(1, REACH + 1)))


def stacked(frames: np.ndarray, stack: int, stride: int) -> np.ndarray:
    """Join frames (T, D) to (ceil(T / stride), stack * D).

    Position i holds ``stack`` frames, from i * stride on. The last frame is repeated where a
    position reaches beyond the end.
    """
    if stack == stride == 1:
        return frames
    starts = np.arange(0, len(frames), stride)
    picked = np.minimum(starts[:, None] + np.arange(stack), len(frames) - 1)
    joined: np.ndarray = frames[picked].reshape(len(starts), -1)
    return joined
