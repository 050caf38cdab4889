"""The audit of a run's data, and the run's settings."""

from __future__ import annotations

from dragoman.studio.records.base import Record


class Place(Record):
    """A row with a problem."""

    file: str
    line: int
    reason: str


class Finding(Record):
    """All rows with the same problem."""

    category: str
    title: str
    fate: str
    """What was done with the rows."""
    count: int
    places: list[Place]


class Lengths(Record):
    """The distribution of the lengths of texts."""

    minimum: float
    median: float
    mean: float
    p95: float
    maximum: float


class SideStatistics(Record):
    """Statistics of a side of the usable rows that is text."""

    side: str
    """Name of a source, or "target"."""
    characters: Lengths
    words: Lengths
    distinct_characters: int
    distinct_words: int
    words_once: int
    """Words that occur once."""


class FileAudit(Record):
    """The audit of the files of one part of the data."""

    part: str
    """Name of the part: "train", "dev" or "test"."""
    files: list[str]
    format: str
    summary: str
    rows: int
    used: int
    dropped: int
    distinct_sources: int
    sources_with_several_targets: int
    notes: list[str]
    findings: list[Finding]
    statistics: list[SideStatistics]


class SharedRows(Record):
    """Rows of a held-out part whose source is in the training data too."""

    part: str
    rows: int
    total: int
    pairs: int
    """Rows whose target is the same as well."""


class Audit(Record):
    """The audit of a run's data."""

    run: str
    train: int
    """Number of rows."""
    dev: int
    """Number of rows."""
    test: int
    """Number of rows."""
    held_out: str
    """How dev and test rows were chosen, in a sentence, or ""."""
    files: list[FileAudit]
    overlap: list[SharedRows]


class Setting(Record):
    """One setting of a recipe."""

    path: str
    """Such as "decoder.width"."""
    value: str
    """As JSON."""


class Settings(Record):
    """All settings of a run."""

    run: str
    settings: list[Setting]
