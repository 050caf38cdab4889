"""Rows of the data: their sources, of which some may be files, and their target."""

from __future__ import annotations

from dragoman.studio.records.base import Record


class SourceFile(Record):
    """A source of a row that is a file. Its path is not sent."""

    id: str
    """To be given as an input; "" in one-file pages."""
    kind: str
    """Kind of the file: "image", "speech" or "features"."""
    url: str
    """/api/uploads/…, or a data URL in one-file pages; "" if the file is left out."""


class Example(Record):
    """A row to try a run with."""

    source: dict[str, str]
    """By name; of a file, its name without the folder."""
    files: dict[str, SourceFile]
    """The sources that are files, by name."""
    target: str
    line: int
