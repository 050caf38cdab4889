"""What the files of one source look like: sizes and durations, as numbers and as small histograms."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dragoman.data.media.files import Probe

_BAR = 30  # characters of the longest bar
_NAMES = {"image": "Pictures", "speech": "Recordings", "features": "Feature sequences"}


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution. ``histogram`` counts by powers of two: key 8 holds what is over 4 and at most 8."""

    minimum: float
    median: float
    mean: float
    p95: float  # the smallest value that 95 % do not exceed
    maximum: float
    histogram: dict[float, int]

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one positive value."""
        ordered = sorted(values)
        count = len(ordered)
        median = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
        bins = Counter(2.0 ** math.ceil(math.log2(value)) for value in ordered)
        p95 = ordered[-(-count * 95 // 100) - 1]
        histogram = dict(sorted(bins.items()))
        return cls(ordered[0], median, math.fsum(ordered) / count, p95, ordered[-1], histogram)

    def lines(self, label: str) -> Iterator[str]:
        if self.minimum == self.maximum:
            yield f"  {label + ',':<20}all {_number(self.minimum)}"
            return
        numbers = "/".join(map(_number, (self.minimum, self.median, self.mean, self.p95, self.maximum)))
        yield f"  {label + ',':<20}min/median/mean/95 %/max  {numbers}"
        most = max(self.histogram.values())
        for bound, count in self.histogram.items():
            bar = "█" * max(1, round(_BAR * count / most))
            yield f"    over {_number(bound / 2):>6} to {_number(bound):>6}  {count:>9,}  {bar}"


@dataclass(frozen=True, slots=True)
class MediaStatistics:
    """One source of the usable rows whose values are files. A file named in many rows counts once."""

    kind: str
    files: int
    measures: dict[str, Spread]  # by what is measured, the unit said
    counts: dict[str, dict[int, int]]  # of what has few values: files by sample rate, channels, columns
    total_seconds: float = 0.0

    @classmethod
    def of(cls, kind: str, probes: Sequence[Probe]) -> MediaStatistics:
        measures: dict[str, Sequence[float]]
        if kind == "image":
            measures = {"width in pixels": [p.width for p in probes], "height in pixels": [p.height for p in probes]}
        elif kind == "speech":
            measures = {"seconds": [probe.seconds for probe in probes]}
        else:
            measures = {"rows": [probe.frames for probe in probes]}
        counted = {"speech": ("rate", "channels"), "features": ("features",)}.get(kind, ())
        counts = {name: dict(Counter(getattr(probe, name) for probe in probes).most_common()) for name in counted}
        spreads = {name: Spread.of(values) for name, values in measures.items()}
        return cls(kind, len(probes), spreads, counts, math.fsum(probe.seconds for probe in probes))

    def lines(self, name: str) -> Iterator[str]:
        """For a terminal."""
        length = f", {_duration(self.total_seconds)} together" if self.total_seconds else ""
        yield f"{_NAMES[self.kind]} ({name}): {self.files:,} distinct{length}"
        for label, spread in self.measures.items():
            yield from spread.lines(label)
        words = {"rate": "samples a second", "channels": "channels", "features": "columns"}
        for label, counts in self.counts.items():
            shown = ", ".join(f"{value:,} ({count:,} files)" for value, count in list(counts.items())[:4])
            if len(counts) == 1:
                shown = f"all {next(iter(counts)):,}"
            yield f"  {words[label] + ',':<20}{shown}{', …' if len(counts) > 4 else ''}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} seconds"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} hours" if hours else f"{minutes}:{rest:02} minutes"
