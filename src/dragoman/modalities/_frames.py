"""What sequences of frames share, whether they were sound or given as numbers: normalisation, padding, masks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from pydantic import Field, field_validator
from torch import Tensor

from dragoman.config import Section
from dragoman.contracts import Frontend
from dragoman.data.media import named
from dragoman.errors import UserError
from dragoman.files import write_json
from dragoman.nn.chance import chance
from dragoman.types import Padded

Made = TypeVar("Made")
SAMPLE = 200  # files that statistics are learnt from
SMALLEST = 1e-3  # standard deviation; a feature that hardly changes is not blown up


class FramesConfig(Section):
    """What training does to frames, none of which changes what was said.

    Speeds: Ko et al. 2015. Masks: SpecAugment (Park et al. 2019, section 2), stripes of time and features are hidden.
    """

    speeds: tuple[float, ...] = (1.0,)  # one is drawn for every sequence each time training reads it
    time_masks: int = Field(0, ge=0)  # stripes of time a sequence
    time_width: float = Field(0.1, gt=0, le=1)  # widest stripe, as a share of the sequence
    feature_masks: int = Field(0, ge=0)  # stripes of features a sequence
    feature_width: float = Field(0.2, gt=0, le=1)  # widest stripe, as a share of the features

    @field_validator("speeds")
    @classmethod
    def _speeds(cls, speeds: tuple[float, ...]) -> tuple[float, ...]:
        if not speeds or not all(0.5 <= speed <= 2 for speed in speeds):
            raise ValueError("speeds are numbers between 0.5 and 2, for example [0.9, 1.0, 1.1]")
        return speeds

    @property
    def changes_speed(self) -> bool:
        return set(self.speeds) != {1.0}

    def draw_speed(self, chance: np.random.Generator) -> float:
        return self.speeds[int(chance.integers(len(self.speeds)))]


@dataclass(frozen=True, slots=True)
class Statistics:
    """Mean and standard deviation of every feature."""

    mean: Tensor  # (D,)
    deviation: Tensor  # (D,)

    @classmethod
    def of(cls, sequences: Iterable[Tensor]) -> Statistics:
        frames = torch.cat(list(sequences)).double()  # (all frames, D)
        return cls(frames.mean(0).float(), frames.std(0, correction=0).clamp_min(SMALLEST).float())

    def normalised(self, frames: Tensor) -> Tensor:
        return (frames - self.mean) / self.deviation

    def to_json(self) -> dict[str, list[float]]:
        return {"mean": self.mean.tolist(), "deviation": self.deviation.tolist()}

    @classmethod
    def from_json(cls, record: dict[str, list[float]]) -> Statistics:
        return cls(torch.tensor(record["mean"]), torch.tensor(record["deviation"]))


def statistics_of(paths: Sequence[str], frames: Callable[[str], Tensor]) -> Statistics:
    """Of files, as ``frames`` reads them."""

    def read(path: str) -> Tensor:
        with named(path):
            return frames(path)

    return Statistics.of(map(read, paths))


def evenly(items: Sequence[str], count: int) -> list[str]:
    """At most ``count`` of the items, spread over all of them."""
    if len(items) <= count:
        return list(items)
    return [items[index * len(items) // count] for index in range(count)]


def pad_frames(sequences: Sequence[Tensor]) -> Padded:
    data = torch.nn.utils.rnn.pad_sequence(list(sequences), batch_first=True)  # (B, S, D)
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return Padded(data, torch.arange(data.shape[1]) < lengths[:, None])


class FramesFrontend(Frontend):
    """Frames as they are; in training with stripes hidden. What is hidden is 0, the mean of normalised features."""

    def __init__(self, width: int, masks: FramesConfig) -> None:
        super().__init__()
        self.width, self.masks = width, masks

    def forward(self, source: Padded) -> Padded:
        if not self.training:
            return source
        masks, data = self.masks, source.data
        lengths = source.mask.sum(1)
        for _ in range(masks.time_masks):
            data = data.masked_fill(_stripe(lengths, data.shape[1], masks.time_width)[:, :, None], 0.0)
        widths = torch.full_like(lengths, data.shape[2])
        for _ in range(masks.feature_masks):
            data = data.masked_fill(_stripe(widths, data.shape[2], masks.feature_width)[:, None], 0.0)
        return Padded(data, source.mask)


def _stripe(lengths: Tensor, longest: int, share: float) -> Tensor:
    """(B, longest): True in one stripe a row, from 0 to that share of the row wide, anywhere in it."""
    drawn = torch.rand(2, len(lengths), device=lengths.device, generator=chance())
    width = (drawn[0] * ((share * lengths).long() + 1)).long()  # each as likely
    begin = (drawn[1] * (lengths - width + 1)).long()
    positions = torch.arange(longest, device=lengths.device)
    return (positions >= begin[:, None]) & (positions < (begin + width)[:, None])


def write_record(folder: Path, name: str, record: dict[str, Any]) -> None:
    write_json(folder / f"{name}.frames.json", record)


def read_record(folder: Path, name: str, made: Callable[[dict[str, Any]], Made]) -> Made:
    """What ``made`` makes of it."""
    path = Path(folder) / f"{name}.frames.json"
    try:
        return made(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UserError(f"{path}: missing; without it the source {name!r} cannot be read as in training") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise UserError(f"{path}: damaged ({error!r}); train again, or restore the file") from None
