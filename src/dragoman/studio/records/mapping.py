"""Inputs as points of a plane."""

from __future__ import annotations

from typing import Literal

from dragoman.studio.records.base import Record

Layout = Literal["pca", "umap"]


class Point(Record):
    x: float
    y: float
    source: dict[str, str]
    target: str
    line: int


class RepresentationMap(Record):
    run: str
    file: str
    representation: str  # what of the source is drawn, in words
    layout: Layout
    explained: tuple[float, float] | None  # share of the variance along x and y; None where the axes mean nothing
    points: list[Point]


class Neighbour(Record):
    index: int | None  # among the points of the map, if it is drawn
    similarity: float  # cosine
    source: dict[str, str]
    target: str
    line: int


class Neighbours(Record):
    x: float  # where the input lies on the map
    y: float
    examples: int  # how many were searched
    neighbours: list[Neighbour]  # nearest first
