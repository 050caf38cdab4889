"""The map of source representations."""

from __future__ import annotations

from typing import Literal

from dragoman.studio.records.base import Record
from dragoman.studio.records.examples import SourceFile

Layout = Literal["pca", "umap"]


class Point(Record):
    """An example on the map."""

    x: float
    y: float
    source: dict[str, str]
    """By name; of a file, its name without the folder."""
    files: dict[str, SourceFile]
    """The sources that are files, by name."""
    target: str
    line: int
    source_length: int | None
    """Of the longest source, in tokens or frames; None if all sources are pictures."""


class RepresentationMap(Record):
    """Examples as points of a plane."""

    run: str
    file: str
    representation: str
    """What the vectors of the sources are, in words."""
    layout: Layout
    explained: tuple[float, float] | None
    """Share of the variance along x and y; None if the axes have no meaning."""
    points: list[Point]


class Neighbour(Record):
    """An example that is similar to an input."""

    index: int | None
    """Among the points of the map; None if it is not one of them."""
    similarity: float
    """Cosine."""
    source: dict[str, str]
    """By name; of a file, its name without the folder."""
    files: dict[str, SourceFile]
    """The sources that are files, by name."""
    target: str
    line: int


class Neighbours(Record):
    """The examples that are most similar to an input."""

    x: float
    """Where the input lies on the map."""
    y: float
    """Where the input lies on the map."""
    examples: int
    """Number of examples that were searched."""
    neighbours: list[Neighbour]
    """Nearest first."""
