"""A set of sequences as a tree in three arrays: millions of them in a few bytes for each node."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import numpy as np

Pairs = tuple[np.ndarray, np.ndarray]
FAR = 65_535  # labels to an end: as many, or more


class Trie:
    """The tree of some sequences of small numbers, its labels: bytes, or tokens.

    Its nodes are numbered level by level, so the children of a node are a range. ``keys`` holds ``parent * base +
    label`` of every node but the root, in ascending order. ``first[n]`` is the first child of node n, and
    ``first[n + 1]`` the node after its last. Nothing is an object of its own for a node.
    """

    def __init__(self, keys: np.ndarray, is_end: np.ndarray, base: int) -> None:
        self.keys, self.is_end, self.base = keys, is_end, base
        parents = np.arange(len(is_end) + 1, dtype=np.int64) * base
        self.first = (np.searchsorted(keys, parents) + 1).astype(np.int32)

    @classmethod
    def build(cls, sequences: Sequence[bytes], base: int = 256, width: int = 1) -> tuple[Trie, np.ndarray]:
        """Return the tree of some sequences, and the node at which each of them ends.

        The sequences are sorted, and may repeat. Each label is ``width`` bytes, the highest first, and below ``base``.
        """
        lengths = np.fromiter(map(len, sequences), np.int64, len(sequences)) // width
        labels = np.frombuffer(b"".join(sequences), f">u{width}")
        starts = np.cumsum(lengths) - lengths
        rows = np.flatnonzero(lengths > 0)  # the sequences that go on at this level
        parents = np.zeros(len(rows), np.int64)
        last = np.zeros(len(sequences), np.int64)
        keys, count, depth = [np.zeros(0, np.int64)], 1, 0
        while len(rows):
            own = parents * base + labels[starts[rows] + depth]
            is_new = np.ones(len(own), bool)
            is_new[1:] = own[1:] != own[:-1]  # sorted: those with the same beginning are neighbours
            keys.append(own[is_new])
            nodes = count + np.cumsum(is_new) - 1
            depth += 1
            complete = lengths[rows] == depth
            last[rows[complete]] = nodes[complete]
            count += len(keys[-1])
            rows, parents = rows[~complete], nodes[~complete]
        is_end = np.zeros(count, bool)  # (nodes,) a sequence ends here
        is_end[last] = True
        return cls(np.concatenate(keys), is_end, base), last

    def __len__(self) -> int:
        return len(self.is_end)

    def children(self, nodes: np.ndarray) -> Pairs:
        """Return all children of some nodes: the place of the parent in ``nodes``, and the child, (M,) each."""
        return expand(self.first[nodes], self.first[nodes + 1])

    def labels(self, nodes: np.ndarray, parents: np.ndarray) -> np.ndarray:
        """Return what leads to some nodes from their parents."""
        return self.keys[nodes - 1] - parents * self.base

    def step(self, nodes: np.ndarray, labels: np.ndarray) -> Pairs:
        """Return which of some nodes have a child by this label, and the children."""
        if not len(self.keys) or not len(nodes):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        wanted = nodes.astype(np.int64) * self.base + labels
        found = np.searchsorted(self.keys, wanted)
        which = np.flatnonzero(self.keys[np.minimum(found, len(self.keys) - 1)] == wanted)
        return which, found[which] + 1

    def distances(self) -> np.ndarray:
        """Return how many labels lead from each node to the nearest end of a sequence, (nodes,); at most ``FAR``."""
        levels = [(0, 1)]
        while (below := (int(self.first[levels[-1][0]]), int(self.first[levels[-1][1]])))[0] < below[1]:
            levels.append(below)
        found = np.where(self.is_end, 0, FAR).astype(np.uint16)
        for (begin, end), (first, after) in zip(levels[-2::-1], levels[:0:-1], strict=True):
            inner = begin + np.flatnonzero(self.first[begin:end] < self.first[begin + 1 : end + 1])  # with children
            nearest = np.minimum.reduceat(found[first:after], self.first[inner] - first)
            found[inner] = np.minimum(found[inner], np.minimum(nearest, FAR - 1) + 1)
        return found

    def contains(self, labels: Iterable[int]) -> bool:
        """Tell whether a sequence is one of those in the tree."""
        node = 0
        for label in labels:
            wanted, end = node * self.base + label, int(self.first[node + 1]) - 1
            place = bisect_left(self.keys, wanted, int(self.first[node]) - 1, end)
            if place == end or self.keys[place] != wanted:
                return False
            node = place + 1
        return bool(self.is_end[node])


def expand(begins: np.ndarray, ends: np.ndarray) -> Pairs:
    """Return the numbers of several ranges one after the other, with the place of the range of each."""
    counts = ends - begins
    which = np.repeat(np.arange(len(counts)), counts)
    shift = begins - np.cumsum(counts) + counts
    return which, np.arange(len(which)) + shift[which]
