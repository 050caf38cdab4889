"""What was found in the data, and the settings."""

from __future__ import annotations

from dragoman.studio.records.base import Record


class Place(Record):
    file: str
    line: int
    reason: str


class Finding(Record):
    category: str
    title: str
    fate: str  # what became of the rows
    count: int
    places: list[Place]


class Lengths(Record):
    minimum: float
    median: float
    mean: float
    p95: float
    maximum: float


class SideStatistics(Record):
    """One side of the usable rows, where it is text."""

    side: str  # name of a source, or "target"
    characters: Lengths
    words: Lengths
    distinct_characters: int
    distinct_words: int
    words_once: int


class FileAudit(Record):
    part: str  # "train", "dev", "test"
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
    """Rows of a held-out part whose source stands in the training data too."""

    part: str
    rows: int
    total: int
    pairs: int  # with the same target


class Audit(Record):
    run: str
    train: int  # rows
    dev: int
    test: int
    held_out: str  # a sentence, or ""
    files: list[FileAudit]
    overlap: list[SharedRows]


class Setting(Record):
    path: str  # "decoder.width"
    value: str  # as JSON


class Settings(Record):
    run: str
    settings: list[Setting]
