"""Sound: a recording becomes log-mel frames, one every 10 ms.

Training may change the speed of a recording (Ko et al. 2015) and mask stripes of it (SpecAugment,
Park et al. 2019); both keep what was said.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from dragoman.data.media import Probe, named
from dragoman.data.modality import Modality, pad_sequences
from dragoman.modalities import _audio_reader as reader
from dragoman.modalities._frames import (
    SAMPLE,
    FeatureStatistics,
    FramesConfig,
    fit_statistics,
    read_record,
    spread_sample,
    write_record,
)
from dragoman.modalities._signal import frame_count, log_mel, resample
from dragoman.types import Axis, PaddedArrays

HIGHEST_RATE = 16_000  # that "auto" chooses: speech has little above 8 kHz
MELS_OF_SPEECH, MELS_OF_TELEPHONE = 80, 40  # for recordings at 16 kHz, at 8 kHz
SPEAKER_SAMPLE = 20  # files that a speaker's statistics are learnt from


class Speech(Modality):
    is_file = True
    is_timed = True
    is_drawn_over = True
    frontend_kind = "frames"
    suffixes = (".wav", ".flac", ".ogg")
    marks = (rb"RIFF....WAVE", rb"RIFX....WAVE", rb"RF64....WAVE", rb"fLaC", rb"OggS")
    file_noun = "a recording"
    file_title = "Recordings"
    count_titles: ClassVar = {"rate": "samples a second", "channels": "channels"}

    class Config(FramesConfig):
        rate: int | Literal["auto"] = "auto"
        """Sampling rate in Hz that all recordings are resampled to. auto: the most common one, at
        most 16,000."""
        mels: int | None = Field(None, gt=0)
        """Number of mel features of a frame. None: 80, or 40 for rates up to 8 kHz."""
        window: float = Field(0.025, gt=0)
        """Length of a frame in seconds."""
        hop: float = Field(0.010, gt=0)
        """Seconds from one frame to the next."""
        low: float = Field(20.0, ge=0)
        """Lowest frequency in Hz."""
        high: float | None = Field(None, gt=0)
        """Highest frequency in Hz. None: half the sampling rate."""
        normalise: Literal["utterance", "speaker", "global"] = "utterance"
        """Whose mean and standard deviation are normalised away."""
        speaker: str = ""
        """Regular expression whose first group is the speaker's name in the path."""

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

    config: Config

    def __init__(
        self,
        config: Config,
        rate: int,
        overall: FeatureStatistics | None = None,
        speakers: Mapping[str, FeatureStatistics] | None = None,
    ) -> None:
        self.config, self.rate, self.overall, self.speakers = config, rate, overall, dict(speakers or {})
        self.mels = config.mels or (MELS_OF_SPEECH if rate > 8000 else MELS_OF_TELEPHONE)
        self.hop = max(1, round(config.hop * rate))  # samples
        self.window = max(self.hop, round(config.window * rate))
        self.high = min(config.high or rate / 2, rate / 2)
        self.low = min(config.low, self.high / 2)

    @classmethod
    def probe(cls, raw: str) -> Probe:
        return reader.probe(raw)

    @classmethod
    def examine(cls, raw: str) -> Probe:
        return reader.examine(raw)

    @classmethod
    def measures(cls, probe: Probe) -> Mapping[str, float]:
        return {"seconds": probe.seconds}

    @classmethod
    def counts(cls, probe: Probe) -> Mapping[str, int]:
        return {"rate": probe.rate, "channels": probe.channels}

    @classmethod
    def fit(cls, config: Any, raw: Sequence[str], name: str) -> Speech:
        sample = spread_sample(raw, SAMPLE)
        rate = config.rate
        if rate == "auto":
            rates = Counter(map(_rate_of, sample))
            rate = min(HIGHEST_RATE, max(rates, key=lambda rate: (rates[rate], rate)))
        fitted = cls(config, int(rate))
        if config.normalise == "global":
            fitted.overall = fit_statistics(sample, fitted.frames)
        elif config.normalise == "speaker":
            by_speaker: dict[str, list[str]] = {}
            for path in raw:
                if (speaker := fitted.speaker(path)) is not None:
                    by_speaker.setdefault(speaker, []).append(path)
            for speaker, paths in sorted(by_speaker.items()):
                fitted.speakers[speaker] = fit_statistics(spread_sample(paths, SPEAKER_SAMPLE), fitted.frames)
        return fitted

    @property
    def notes(self) -> list[str]:
        chosen = " (the most common of the recordings)" if self.config.rate == "auto" else ""
        notes = [f"sound: {self.rate:,} Hz{chosen}, {self.mels} mel features every {1000 * self.seconds:g} ms"]
        if self.config.normalise == "speaker":
            notes.append(
                f"sound: normalised by speaker, {len(self.speakers)} of them found in the paths; a recording of "
                "anybody else is normalised by itself"
            )
        return notes

    @property
    def seconds(self) -> float:
        """Seconds from one frame to the next."""
        return self.hop / self.rate

    def speaker(self, raw: str) -> str | None:
        """Return the speaker that the file's name tells, or else its path; None if unknown."""
        if self.config.normalise != "speaker":
            return None
        match = re.search(self.config.speaker, Path(raw).name) or re.search(self.config.speaker, raw)
        return match.group(1) if match else None

    def frames(self, raw: str, speed: float = 1.0) -> np.ndarray:
        """Return (S, mels) frames, not normalised."""
        return self._frames(*reader.read(raw), speed)

    def _frames(self, wave: np.ndarray, rate: int, speed: float) -> np.ndarray:
        sound = resample(wave, rate, self.rate)
        faster = Fraction(speed).limit_denominator(100)
        sound = resample(sound, faster.numerator, faster.denominator)  # as if it had been recorded at a higher rate
        return log_mel(sound, self.rate, mels=self.mels, window=self.window, hop=self.hop, low=self.low, high=self.high)

    def _normalise(self, raw: str, frames: np.ndarray) -> np.ndarray:
        known = self.overall or self.speakers.get(self.speaker(raw) or "")
        return (known or FeatureStatistics.of([frames])).normalise(frames)

    def array(self, raw: str) -> np.ndarray:
        return self._normalise(raw, self.frames(raw))

    def augmented(self, raw: str, generator: np.random.Generator) -> np.ndarray:
        return self._normalise(raw, self.frames(raw, self.config.draw_speed(generator)))

    @property
    def varies(self) -> bool:
        return self.config.changes_speed

    def length(self, raw: str) -> int:
        header = self.probe(raw)
        return frame_count(-(-header.frames * self.rate // header.rate), self.hop)

    def collate(self, arrays: Sequence[np.ndarray]) -> PaddedArrays:
        return pad_sequences(arrays)

    def frontend_options(self) -> Mapping[str, Any]:
        return self.config.frontend_options(self.mels)

    def axis(self, array: np.ndarray, stride: int = 1) -> Axis:
        seconds = self.seconds * stride
        count = -(-len(array) // stride)
        return Axis("speech", tuple(f"{index * seconds:.2f} s" for index in range(count)), seconds=seconds)

    def describe_reading(self) -> Mapping[str, Any]:
        return {
            "rate": self.rate,
            "mels": self.mels,
            "window": self.window,
            "hop": self.hop,
            "low": self.low,
            "high": self.high,
            "overall": None if self.overall is None else self.overall.to_json(),
        }

    def as_described(self) -> tuple[Speech, str]:
        if not self.speakers:
            return self, ""
        # Speakers are recognised by paths, which other programs do not have.
        return Speech(self.config, self.rate, self.overall), (
            "Here each recording is normalised by itself. The run normalises recordings of speakers that it knows "
            f"({len(self.speakers)}) by speaker."
        )

    def save(self, folder: Path, name: str) -> list[str]:
        speakers = {speaker: statistics.to_json() for speaker, statistics in self.speakers.items()}
        overall = None if self.overall is None else self.overall.to_json()
        record = {"kind": "speech", "rate": self.rate, "overall": overall, "speakers": speakers}
        return write_record(folder, name, record)

    @classmethod
    def load(cls, config: Any, folder: Path, name: str) -> Speech:
        def build(record: dict[str, Any]) -> Speech:
            overall = None if record["overall"] is None else FeatureStatistics.from_json(record["overall"])
            speakers = {speaker: FeatureStatistics.from_json(values) for speaker, values in record["speakers"].items()}
            return cls(config, int(record["rate"]), overall, speakers)

        return read_record(folder, name, build)


def _rate_of(path: str) -> int:
    with named(path):
        return reader.probe(path).rate
