"""Which words of two languages belong together, learnt from pairs of texts: IBM Model 1 (Brown et al. 1993).

The model is learnt in both directions, by expectation maximisation over all cells of all pairs at once. A pair of units
that both directions hold more probable than all others together is confident.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

Texts: TypeAlias = tuple[Sequence[str], Sequence[str]]  # the units of a source and of its target

ITERATIONS = 6
MOST_CELLS = 3_000_000  # source units times target units, summed over the pairs
CONFIDENT = 0.5  # more than this share of the probability is on one pair
NULL = 0  # the source unit of what comes from nowhere


@dataclass(frozen=True, slots=True)
class Table:
    """p(made | given) for pairs of units that occur together."""

    keys: np.ndarray  # (pairs,) ascending: given * size + made
    values: np.ndarray  # (pairs,)
    size: int

    def look_up(self, given: np.ndarray, made: np.ndarray) -> np.ndarray:
        """Return p(made | given) for all pairs of two lists of units, (given, made); 0 for unknown ones."""
        wanted = given[:, None] * self.size + made[None, :]
        if not len(self.keys):
            return np.zeros(wanted.shape)
        places = np.minimum(np.searchsorted(self.keys, wanted), len(self.keys) - 1)
        known = (self.keys[places] == wanted) & (given[:, None] >= 0) & (made[None, :] >= 0)
        return np.where(known, self.values[places], 0.0)


@dataclass(frozen=True, slots=True)
class WordPairs:
    """IBM Model 1 in both directions."""

    sources: dict[str, int]  # numbers from 1; 0 is ``NULL``
    targets: dict[str, int]
    forward: Table  # p(target | source)
    backward: Table  # p(source | target)

    @classmethod
    def learn(cls, pairs: Sequence[Texts]) -> WordPairs:
        """Learn from pairs, of which as many are used as ``MOST_CELLS`` allows."""
        sources: dict[str, int] = {}
        targets: dict[str, int] = {}
        numbered: list[tuple[np.ndarray, np.ndarray]] = []
        cells = 0
        for source, target in pairs:
            cells += (len(source) + 1) * (len(target) + 1)
            if cells > MOST_CELLS and numbered:
                break
            ours = [sources.setdefault(word, len(sources) + 1) for word in source]
            theirs = [targets.setdefault(word, len(targets) + 1) for word in target]
            numbered.append((np.array(ours, np.int64), np.array(theirs, np.int64)))
        size = max(len(sources), len(targets)) + 1
        forward = _maximise(numbered, size)
        backward = _maximise([(target, source) for source, target in numbered], size)
        return cls(sources, targets, forward, backward)

    def confident_pairs(self, source: Sequence[str], target: Sequence[str]) -> list[tuple[list[int], list[int]]]:
        """Return the places of units that belong together, (source, target), of two texts.

        Both directions hold the pair more probable than all others together. A unit may be in several places.
        """
        ours, theirs = _places(source), _places(target)
        given = np.array([NULL, *(self.sources.get(word, -1) for word in ours)], np.int64)
        made = np.array([NULL, *(self.targets.get(word, -1) for word in theirs)], np.int64)
        forward = _posterior(self.forward.look_up(given, made[1:]))[1:]  # (S, T) which source each target is from
        backward = _posterior(self.backward.look_up(made, given[1:]))[1:].T  # (S, T) which target each source is from
        both = np.argwhere((forward > CONFIDENT) & (backward > CONFIDENT))
        here, there = list(ours.values()), list(theirs.values())
        return [(here[one], there[other]) for one, other in both]


def _places(words: Sequence[str]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, word in enumerate(words):
        places.setdefault(word, []).append(place)
    return places


def _posterior(table: np.ndarray) -> np.ndarray:
    """Return (given, made) with columns that sum to 1, or to 0 where nothing is known."""
    total = table.sum(0, keepdims=True)
    return np.divide(table, total, out=np.zeros_like(table), where=total > 0)


def _maximise(pairs: Sequence[tuple[np.ndarray, np.ndarray]], size: int) -> Table:
    """Return p(made | given) after some iterations from a uniform start."""
    given_cells, made_cells, place_cells = [], [], []
    place = 0  # the number of a made unit among all pairs
    for given, made in pairs:
        with_null = np.append(given, NULL)
        given_cells.append(np.tile(with_null, len(made)))
        made_cells.append(np.repeat(made, len(with_null)))
        place_cells.append(np.repeat(np.arange(place, place + len(made)), len(with_null)))
        place += len(made)
    if not place:
        return Table(np.zeros(0, np.int64), np.zeros(0), size)
    keys = np.concatenate(given_cells) * size + np.concatenate(made_cells)
    places = np.concatenate(place_cells)
    known, cells = np.unique(keys, return_inverse=True)
    givens = known // size
    values = np.ones(len(known))
    for _ in range(ITERATIONS):
        weights = values[cells]
        weights /= np.bincount(places, weights, place)[places]  # which given unit makes this one (eq. 17)
        counts = np.bincount(cells, weights, len(known))
        values = counts / np.bincount(givens, counts, size)[givens]  # (eq. 14)
    return Table(known, values, size)
