"""Links between the units of a source text and those of an output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dragoman.inference.alignment.units import UnitKind, Units
from dragoman.runs.alignment import AlignmentChoice


@dataclass(frozen=True, slots=True)
class Link:
    """A unit of the output and the unit of the source that it comes from, both by number from 0."""

    source: int
    target: int
    weight: float  # the share of attention on this source unit while the output unit was written


@dataclass(frozen=True, slots=True, repr=False)
class Alignment:
    """Which source unit each unit of an output comes from.

    >>> alignment = system.predict("abc").alignment
    >>> alignment
    Alignment(... links of characters to characters: ...)
    >>> alignment.source
    ('a', 'b', 'c')
    """

    source_unit: UnitKind
    target_unit: UnitKind
    source: tuple[str, ...]  # the units of all sources that are texts, one after the other
    target: tuple[str, ...]
    links: tuple[Link, ...]  # by target, then source
    weights: np.ndarray  # (target units, source units) shares of attention; what is left is on the end of the source

    def __repr__(self) -> str:
        kinds = f"{self.source_unit}s to {self.target_unit}s"
        return f"Alignment({len(self.links)} links of {kinds}: {self.to_pharaoh()})"

    def to_pharaoh(self) -> str:
        """Return the links as text: source-target, from 0, by source, as word aligners write them."""
        pairs = sorted((link.source, link.target) for link in self.links)
        return " ".join(f"{source}-{target}" for source, target in pairs)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON object: the units, and each link with its weight."""
        links = [{"source": link.source, "target": link.target, "weight": round(link.weight, 5)} for link in self.links]
        units = {"source": self.source_unit, "target": self.target_unit}
        plain: dict[str, Any] = {"units": units, "source": list(self.source), "target": list(self.target)}
        return plain | {"links": links, "pharaoh": self.to_pharaoh()}


def link_units(attention: np.ndarray, sources: Sequence[Units], target: Units) -> Alignment:
    """Align by one attention map (T, S); S are the positions of the sources, one after the other.

    Each unit of the output is linked to the source unit with the largest weight.
    """
    weights = join_source(join_target(attention, target), sources)  # (target units, source units)
    links = []
    if weights.size:
        best = weights.argmax(1)
        links = [
            Link(int(source), unit, float(weights[unit, source]))
            for unit, source in enumerate(best)
            if weights[unit, source] > 0
        ]
    texts = tuple(text for units in sources for text in units.texts)
    return Alignment(sources[0].kind, target.kind, texts, target.texts, tuple(links), weights)


def choose_map(attention: np.ndarray, choice: AlignmentChoice) -> np.ndarray:
    """Return the one map (T, S) that alignments are read from, of all maps (T, A, S)."""
    maps = attention[:, list(choice.maps)] if choice.maps else attention
    return move(maps.mean(1), choice.shift, choice.offset)


def move(weights: np.ndarray, shift: int, offset: int) -> np.ndarray:
    """Return weights (..., T, S) whose rows are those ``shift`` tokens later, and whose columns move by ``offset``.

    The last row has none after it and is used twice. What moves out of the source is dropped.
    """
    if shift and weights.shape[-2] > 1:
        weights = np.concatenate([weights[..., shift:, :], weights[..., -shift:, :]], axis=-2)
    if offset:
        moved = np.zeros_like(weights)
        if offset > 0:
            moved[..., offset:] = weights[..., :-offset]
        else:
            moved[..., :offset] = weights[..., -offset:]
        weights = moved
    return weights


def join_target(weights: np.ndarray, target: Units) -> np.ndarray:
    """Return (..., units, S): the mean of the rows (..., T, S) of each unit's tokens."""
    shares = target.shares  # (T, U)
    count = np.maximum(shares.sum(0), 1e-9)[:, None]  # (U, 1)
    joined: np.ndarray = (shares.T @ weights[..., : len(shares), :]) / count
    return joined


def join_source(weights: np.ndarray, sources: Sequence[Units]) -> np.ndarray:
    """Return (..., T, units): the sum of the columns (..., T, S) of each unit's positions."""
    parts = []
    begin = 0
    for units in sources:
        end = begin + len(units.shares)
        parts.append(weights[..., begin:end] @ units.shares)
        begin = end
    return np.concatenate(parts, axis=-1)
