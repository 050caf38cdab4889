"""Sound in: a recording becomes log-mel frames, one every 10 ms.

Training may hear every recording at another speed (Ko et al. 2015) and with stripes hidden (SpecAugment, Park et al.
2019); both keep what was said.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from dragoman.contracts import Modality
from dragoman.data.media import audio, named, probe
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
from dragoman.modalities._signal import frame_count, log_mel, resample
from dragoman.types import Axis, Padded

HIGHEST_RATE = 16_000  # what "auto" resamples finer recordings to: speech has little above 8 kHz
MELS_OF_SPEECH, MELS_OF_TELEPHONE = 80, 40  # of recordings at 16 kHz, at 8 kHz
OF_A_SPEAKER = 20  # files that a speaker's statistics are learnt from


class Speech(Modality):
    is_file = True

    class Config(FramesConfig):
        rate: int | Literal["auto"] = "auto"  # Hz that all is resampled to; auto: the commonest, at most 16,000
        mels: int | None = Field(None, gt=0)  # features of a frame; not said: 80, of rates up to 8 kHz 40
        window: float = Field(0.025, gt=0)  # seconds that a frame sees
        hop: float = Field(0.010, gt=0)  # seconds from frame to frame
        low: float = Field(20.0, ge=0)  # Hz
        high: float | None = Field(None, gt=0)  # Hz; not said: half the rate
        normalise: Literal["utterance", "speaker", "global"] = "utterance"  # whose mean and deviation are taken out
        speaker: str = ""  # regular expression whose first group is the speaker's name in the path

        @field_validator("rate")
        @classmethod
        def _rate(cls, rate: int | str) -> int | str:
            if isinstance(rate, int) and not 1000 <= rate <= 192_000:
                raise ValueError("a rate is between 1000 and 192000 Hz, or 'auto'")
            return rate

        @model_validator(mode="after")
        def _is_possible(self) -> Any:
            try:
                groups = re.compile(self.speaker).groups
            except re.error as error:
                raise ValueError(f"speaker is no regular expression: {error}") from None
            if self.normalise == "speaker" and groups < 1:
                raise ValueError(
                    "normalise = 'speaker' needs to find the speaker in the path: set speaker to a regular expression "
                    "with a group, for example speaker = '_(\\w+)_'"
                )
            if self.window < self.hop:
                raise ValueError("window must be at least as long as hop, so that nothing is left out between frames")
            return self

    def __init__(
        self,
        config: Config,
        rate: int,
        overall: Statistics | None = None,
        speakers: Mapping[str, Statistics] | None = None,
    ) -> None:
        self.config, self.rate, self.overall, self.speakers = config, rate, overall, dict(speakers or {})
        self.mels = config.mels or (MELS_OF_SPEECH if rate > 8000 else MELS_OF_TELEPHONE)
        self.hop = max(1, round(config.hop * rate))  # samples
        self.window = max(self.hop, round(config.window * rate))
        self.high = min(config.high or rate / 2, rate / 2)
        self.low = min(config.low, self.high / 2)

    @classmethod
    def fit(cls, config: Any, raw: Sequence[str], name: str) -> Speech:
        sample = evenly(raw, SAMPLE)
        rate = config.rate
        if rate == "auto":
            rates = Counter(map(_rate_of, sample))
            rate = min(HIGHEST_RATE, max(rates, key=lambda one: (rates[one], one)))
        fitted = cls(config, int(rate))
        if config.normalise == "global":
            fitted.overall = statistics_of(sample, fitted.frames)
        elif config.normalise == "speaker":
            spoken: dict[str, list[str]] = {}
            for path in raw:
                if (speaker := fitted.speaker(path)) is not None:
                    spoken.setdefault(speaker, []).append(path)
            for speaker, paths in sorted(spoken.items()):
                fitted.speakers[speaker] = statistics_of(evenly(paths, OF_A_SPEAKER), fitted.frames)
        return fitted

    @property
    def notes(self) -> list[str]:
        chosen = " (the commonest of the recordings)" if self.config.rate == "auto" else ""
        notes = [f"sound: {self.rate:,} Hz{chosen}, {self.mels} mel features every {1000 * self.seconds:g} ms"]
        if self.config.normalise == "speaker":
            notes.append(
                f"sound: normalised by speaker, {len(self.speakers)} of them found in the paths; a recording of "
                "anybody else is normalised by itself"
            )
        return notes

    @property
    def seconds(self) -> float:
        """From frame to frame."""
        return self.hop / self.rate

    def speaker(self, raw: str) -> str | None:
        """Looked for in the file's name; where that does not tell, in the whole path."""
        if self.config.normalise != "speaker":
            return None
        found = re.search(self.config.speaker, Path(raw).name) or re.search(self.config.speaker, raw)
        return found.group(1) if found else None

    def frames(self, raw: str, speed: float = 1.0) -> Tensor:
        """(S, mels), not normalised."""
        return self._frames(*audio.read(raw), speed)

    def _frames(self, wave: np.ndarray, rate: int, speed: float) -> Tensor:
        sound = resample(torch.from_numpy(wave), rate, self.rate)
        faster = Fraction(speed).limit_denominator(100)
        sound = resample(sound, faster.numerator, faster.denominator)  # as if recorded at that much higher a rate
        return log_mel(sound, self.rate, mels=self.mels, window=self.window, hop=self.hop, low=self.low, high=self.high)

    def _normalised(self, raw: str, frames: Tensor) -> Tensor:
        known = self.overall or self.speakers.get(self.speaker(raw) or "")
        return (known or Statistics.of([frames])).normalised(frames)

    def tensor(self, raw: str) -> Tensor:
        return self._normalised(raw, self.frames(raw))

    def augmented(self, raw: str, chance: np.random.Generator) -> Tensor:
        return self._normalised(raw, self.frames(raw, self.config.draw_speed(chance)))

    @property
    def varies(self) -> bool:
        return self.config.changes_speed

    def length(self, raw: str) -> int:
        found = probe(raw, "speech")
        return frame_count(-(-found.frames * self.rate // found.rate), self.hop)

    def collate(self, tensors: Sequence[Tensor]) -> Padded:
        return pad_frames(tensors)

    def frontend(self) -> FramesFrontend:
        return FramesFrontend(self.mels, self.config)

    def axis(self, raw: str, stride: int = 1) -> Axis:
        seconds = self.seconds * stride
        count = -(-len(self.frames(raw)) // stride)
        return Axis("speech", tuple(f"{index * seconds:.2f} s" for index in range(count)), seconds=seconds)

    def save(self, folder: Path, name: str) -> None:
        speakers = {speaker: statistics.to_json() for speaker, statistics in self.speakers.items()}
        overall = None if self.overall is None else self.overall.to_json()
        write_record(folder, name, {"kind": "speech", "rate": self.rate, "overall": overall, "speakers": speakers})

    @classmethod
    def load(cls, config: Any, folder: Path, name: str) -> Speech:
        def made(record: dict[str, Any]) -> Speech:
            overall = None if record["overall"] is None else Statistics.from_json(record["overall"])
            speakers = {speaker: Statistics.from_json(found) for speaker, found in record["speakers"].items()}
            return cls(config, int(record["rate"]), overall, speakers)

        return read_record(folder, name, made)


def _rate_of(path: str) -> int:
    with named(path):
        return probe(path, "speech").rate
