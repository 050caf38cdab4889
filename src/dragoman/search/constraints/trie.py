"""A set of byte strings as a tree in three arrays: millions of strings in a few bytes for each node."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Pairs = tuple[np.ndarray, np.ndarray]


class ByteTrie:
    """The tree of some byte strings. Its nodes are numbered level by level, so the children of a node are a range.

    ``keys`` holds ``parent * 256 + byte`` of every node but the root, in ascending order. ``first[n]`` is the first
    child of node n, and ``first[n + 1]`` the node after its last. Nothing is an object of its own for a node.
    """

    def __init__(self, strings: Sequence[bytes]) -> None:
        """``strings`` are sorted and distinct."""
        lengths = np.fromiter(map(len, strings), np.int64, len(strings))
        text = np.frombuffer(b"".join(strings), np.uint8)
        starts = np.cumsum(lengths) - lengths
        rows = np.flatnonzero(lengths > 0)  # the strings that go on at this level
        parents = np.zeros(len(rows), np.int64)
        keys, ends, count, depth = [], [np.array([bool((lengths == 0).any())])], 1, 0
        while len(rows):
            own = parents * 256 + text[starts[rows] + depth]
            is_new = np.ones(len(own), bool)
            is_new[1:] = own[1:] != own[:-1]  # sorted strings: those with the same beginning are neighbours
            keys.append(own[is_new])
            nodes = count + np.cumsum(is_new) - 1
            depth += 1
            complete = lengths[rows] == depth
            terminal = np.zeros(len(keys[-1]), bool)
            terminal[nodes[complete] - count] = True
            ends.append(terminal)
            count += len(terminal)
            rows, parents = rows[~complete], nodes[~complete]
        self.keys = np.concatenate([np.zeros(0, np.int64), *keys])
        self.is_end = np.concatenate(ends)  # (nodes,) a string ends here
        self.first = (np.searchsorted(self.keys, np.arange(count + 1, dtype=np.int64) << 8) + 1).astype(np.int32)

    def __len__(self) -> int:
        return len(self.is_end)

    @property
    def size(self) -> int:
        """The bytes that it takes."""
        return self.keys.nbytes + self.is_end.nbytes + self.first.nbytes

    def children(self, nodes: np.ndarray) -> Pairs:
        """Return all children of some nodes: the place of the parent in ``nodes``, and the child, (M,) each."""
        return expand(self.first[nodes].astype(np.int64), self.first[nodes + 1].astype(np.int64))

    def labels(self, nodes: np.ndarray) -> np.ndarray:
        """Return the bytes that lead to some nodes, of which none is the root."""
        return self.keys[nodes - 1] & 255

    def step(self, nodes: np.ndarray, labels: np.ndarray) -> Pairs:
        """Return which of some nodes have a child by this byte, and the children."""
        if not len(self.keys) or not len(nodes):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        wanted = nodes.astype(np.int64) * 256 + labels
        found = np.searchsorted(self.keys, wanted)
        which = np.flatnonzero(self.keys[np.minimum(found, len(self.keys) - 1)] == wanted)
        return which, found[which] + 1

    def __contains__(self, text: bytes) -> bool:
        node = 0
        for byte in text:
            low, high = self.first[node] - 1, self.first[node + 1] - 1
            place = low + int(np.searchsorted(self.keys[low:high], node * 256 + byte))
            if place == high or self.keys[place] != node * 256 + byte:
                return False
            node = place + 1
        return bool(self.is_end[node])


def expand(begins: np.ndarray, ends: np.ndarray) -> Pairs:
    """Return the numbers of several ranges one after the other, with the place of the range of each."""
    counts = ends - begins
    which = np.repeat(np.arange(len(counts)), counts)
    offsets = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    return which, begins[which] + offsets
