"""Statistics of the files of one source: sizes and durations, with small histograms."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dragoman.data.media import Probe, file_kinds

_BAR = 30  # characters of the longest bar
_BEFORE_BAR = 38  # characters of a line before its bar
_SHOWN = 4  # values of a count that are shown


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution of values.

    ``histogram`` counts by powers of two: key 8 holds what is over 4 and at most 8.
    """

    minimum: float
    median: float
    mean: float
    p95: float  # the smallest value that 95 % do not exceed
    maximum: float
    histogram: dict[float, int]

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Describe at least one positive value."""
        ordered = sorted(values)
        count = len(ordered)
        median = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
        bins = Counter(2.0 ** math.ceil(math.log2(value)) for value in ordered)
        p95 = ordered[-(-count * 95 // 100) - 1]
        histogram = dict(sorted(bins.items()))
        return cls(ordered[0], median, math.fsum(ordered) / count, p95, ordered[-1], histogram)

    def lines(self, label: str, width: int) -> Iterator[str]:
        """Yield the lines of the report; no bar goes beyond ``width`` columns."""
        if self.minimum == self.maximum:
            yield f"  {label + ',':<20}all {_number(self.minimum)}"
            return
        numbers = "/".join(map(_number, (self.minimum, self.median, self.mean, self.p95, self.maximum)))
        yield f"  {label + ',':<20}min/median/mean/95 %/max  {numbers}"
        most = max(self.histogram.values())
        for bound, count in self.histogram.items():
            bar = "█" * max(1, round(min(_BAR, width - _BEFORE_BAR) * count / most))
            yield f"    over {_number(bound / 2):>6} to {_number(bound):>6}  {count:>9,}  {bar}"


@dataclass(frozen=True, slots=True)
class FileStatistics:
    """The files of one source of the usable rows. A file that many rows name counts once."""

    kind: str
    files: int
    measures: dict[str, Spread]  # by title, which says the unit
    counts: dict[str, dict[int, int]]  # of properties with few values: files by value
    total_seconds: float = 0.0

    @classmethod
    def of(cls, kind: str, probes: Sequence[Probe]) -> FileStatistics:
        """Describe at least one file."""
        modality = file_kinds()[kind]
        measures = _by_name([modality.measures(probe) for probe in probes])
        counts = _by_name([modality.counts(probe) for probe in probes])
        return cls(
            kind,
            len(probes),
            {title: Spread.of(values) for title, values in measures.items()},
            {name: dict(Counter(values).most_common()) for name, values in counts.items()},
            math.fsum(probe.seconds for probe in probes),
        )

    def lines(self, name: str, width: int) -> Iterator[str]:
        """Yield the lines of the report about the source ``name``; ``width``: of the terminal."""
        modality = file_kinds()[self.kind]
        length = f", {_duration(self.total_seconds)} together" if self.total_seconds else ""
        yield f"{modality.file_title} ({name}): {self.files:,} distinct{length}"
        for label, spread in self.measures.items():
            yield from spread.lines(label, width)
        for label, counts in self.counts.items():
            shown = ", ".join(f"{value:,} ({count:,} files)" for value, count in list(counts.items())[:_SHOWN])
            if len(counts) == 1:
                shown = f"all {next(iter(counts)):,}"
            title = modality.count_titles.get(label, label)
            yield f"  {title + ',':<20}{shown}{', …' if len(counts) > _SHOWN else ''}"

    def to_json(self) -> dict[str, Any]:
        """Return the statistics as plain values."""
        return asdict(self)


def _by_name(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Turn one mapping per file into one list per name."""
    return {name: [record[name] for record in records] for name in records[0]}


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} seconds"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} hours" if hours else f"{minutes}:{rest:02} minutes"
