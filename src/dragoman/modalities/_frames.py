"""What sequences of frames share: normalisation, augmentation, and the records of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import Field, field_validator

from dragoman.config import Section
from dragoman.data.media import named
from dragoman.files import LARGE, damaged_file, read_json, write_json

Built = TypeVar("Built")
SAMPLE = 200  # files that statistics are learnt from
SMALLEST = 1e-3  # standard deviation; a feature that hardly changes is not amplified


class FramesConfig(Section):
    """The augmentation of frames in training, which keeps their meaning.

    Speeds: Ko et al. 2015. Masks: SpecAugment (Park et al. 2019, section 2), stripes of time and
    features are hidden.
    """

    speeds: tuple[float, ...] = (1.0,)
    """One of these speeds is drawn for every sequence each time training reads it."""
    time_masks: int = Field(0, ge=0)
    """Number of time masks in a sequence."""
    time_width: float = Field(0.1, gt=0, le=1)
    """Widest time mask, as a share of the sequence."""
    feature_masks: int = Field(0, ge=0)
    """Number of feature masks in a sequence."""
    feature_width: float = Field(0.2, gt=0, le=1)
    """Widest feature mask, as a share of the features."""

    @field_validator("speeds")
    @classmethod
    def _speeds(cls, speeds: tuple[float, ...]) -> tuple[float, ...]:
        if not speeds or not all(0.5 <= speed <= 2 for speed in speeds):
            raise ValueError("speeds are numbers between 0.5 and 2, for example [0.9, 1.0, 1.1]")
        return speeds

    @property
    def changes_speed(self) -> bool:
        return set(self.speeds) != {1.0}

    def draw_speed(self, generator: np.random.Generator) -> float:
        return self.speeds[int(generator.integers(len(self.speeds)))]

    def frontend_options(self, width: int) -> Mapping[str, Any]:
        """Return the options of the frontend ``frames``, for frames of ``width`` features."""
        return {
            "width": width,
            "time_masks": self.time_masks,
            "time_width": self.time_width,
            "feature_masks": self.feature_masks,
            "feature_width": self.feature_width,
        }


@dataclass(frozen=True, slots=True)
class FeatureStatistics:
    """The mean and standard deviation of every feature."""

    mean: np.ndarray  # (D,) float32
    deviation: np.ndarray  # (D,) float32

    @classmethod
    def of(cls, sequences: Iterable[np.ndarray]) -> FeatureStatistics:
        frames = np.concatenate(list(sequences), dtype=np.float64)  # (all frames, D)
        deviation = np.maximum(frames.std(0), SMALLEST)
        return cls(frames.mean(0).astype(np.float32), deviation.astype(np.float32))

    def normalise(self, frames: np.ndarray) -> np.ndarray:
        normalised: np.ndarray = (frames - self.mean) / self.deviation
        return normalised

    def to_json(self) -> dict[str, list[float]]:
        return {"mean": self.mean.tolist(), "deviation": self.deviation.tolist()}

    @classmethod
    def from_json(cls, record: Mapping[str, list[float]]) -> FeatureStatistics:
        mean, deviation = (np.array(record[key], dtype=np.float32) for key in ("mean", "deviation"))
        if mean.ndim != 1 or mean.shape != deviation.shape:
            raise ValueError("mean and deviation are not lists of the same length")
        return cls(mean, deviation)


def fit_statistics(paths: Sequence[str], read: Callable[[str], np.ndarray]) -> FeatureStatistics:
    """Return the statistics of the frames that ``read`` gives for these files."""

    def read_named(path: str) -> np.ndarray:
        with named(path):
            return read(path)

    return FeatureStatistics.of(map(read_named, paths))


def spread_sample(items: Sequence[str], count: int) -> list[str]:
    """Return at most ``count`` of the items, spread evenly over all of them."""
    if len(items) <= count:
        return list(items)
    return [items[index * len(items) // count] for index in range(count)]


def write_record(folder: Path, name: str, record: dict[str, Any]) -> list[str]:
    """Save what was learnt about a source, and return the name of the file."""
    path = folder / f"{name}.frames.json"
    write_json(path, record)
    return [path.name]


def read_record(folder: Path, name: str, build: Callable[[dict[str, Any]], Built]) -> Built:
    """Return what ``build`` makes of the record that was saved for a source."""
    path = Path(folder) / f"{name}.frames.json"
    missing = f"missing; without it the source {name!r} cannot be read as in training"
    record = read_json(path, missing, limit=LARGE)
    try:
        return build(record)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged_file(path, repr(error)) from None
