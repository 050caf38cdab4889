"""Where in a picture each unit of an output was looked for, as a box in pixels of the picture."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dragoman.inference.alignment.links import join_target
from dragoman.inference.alignment.units import UnitKind, Units

HALF = 0.5  # of the largest weight: what belongs to a box


@dataclass(frozen=True, slots=True)
class Box:
    """A unit of an output and the part of the picture that it comes from."""

    text: str
    left: int  # pixels of the picture as it is shown, turned as it says; from 0
    top: int
    right: int  # the first column that is not in the box
    bottom: int
    weight: float  # the share of attention inside the box

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        edges = {"left": self.left, "top": self.top, "right": self.right, "bottom": self.bottom}
        return {"text": self.text, **edges, "weight": round(self.weight, 5)}


@dataclass(frozen=True, slots=True, repr=False)
class Boxes:
    """A box for each unit of an output."""

    unit: UnitKind
    units: tuple[Box, ...]
    source: str  # the name of the source that is the picture
    size: tuple[int, int]  # height and width of the picture in pixels

    def __repr__(self) -> str:
        return f"Boxes({len(self.units)} {self.unit}s in {self.size[1]}×{self.size[0]} pixels of {self.source!r})"

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object."""
        size = {"height": self.size[0], "width": self.size[1]}
        return {"unit": self.unit, "source": self.source, **size, "units": [box.to_json() for box in self.units]}


def find_boxes(
    attention: np.ndarray,
    target: Units,
    grid: tuple[int, int],
    stride: int,
    seen: tuple[int, int],
    size: tuple[int, int],
) -> list[Box]:
    """Return a box for each unit, by one map (T, S) over the regions of a picture in reading order.

    A box has the region of the largest weight and all regions with at least half of that which touch it side by side.
    ``stride``: pixels along a side of a region; ``seen``: height and width that the model saw; ``size``: of the file.
    """
    rows, columns = grid
    boxes = []
    for text, weights in zip(target.texts, join_target(attention, target), strict=True):
        regions = weights.reshape(rows, columns)
        inside = grow_region(regions)
        lines, places = np.flatnonzero(inside.any(1)), np.flatnonzero(inside.any(0))
        top, bottom = _pixels(lines, stride, seen[0], size[0])
        left, right = _pixels(places, stride, seen[1], size[1])
        box = regions[lines[0] : lines[-1] + 1, places[0] : places[-1] + 1]
        boxes.append(Box(text, left, top, right, bottom, float(box.sum())))
    return boxes


def grow_region(weights: np.ndarray) -> np.ndarray:
    """Return which of (rows, columns) are connected with the largest by regions of at least half its weight."""
    strong = weights >= HALF * weights.max()
    inside = np.zeros_like(strong)
    inside.flat[int(weights.argmax())] = True
    while True:
        grown = inside.copy()
        grown[1:] |= inside[:-1]
        grown[:-1] |= inside[1:]
        grown[:, 1:] |= inside[:, :-1]
        grown[:, :-1] |= inside[:, 1:]
        grown &= strong
        if (grown == inside).all():
            return inside
        inside = grown


def _pixels(lines: np.ndarray, stride: int, seen: int, size: int) -> tuple[int, int]:
    """Return the first pixel of the file in these lines of regions, and the one after the last."""
    begin, end = int(lines[0]) * stride, min(seen, (int(lines[-1]) + 1) * stride)
    first = begin * size // seen
    return first, max(first + 1, min(size, -(-end * size // seen)))
