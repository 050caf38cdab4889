"""Divide a beam among hypotheses that have less and more of what an output has to contain (Post & Vilar 2018).

A hypothesis that begins a required phrase pays for it at once, and one that puts it off looks better until the end. So
hypotheses compete only with those that need as many tokens as they do: these are a bank. The places of the beam go
to the banks in turn, the one that needs least first, and in each bank to the best.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from dragoman.search.rules import LeadingRule
from dragoman.search.trace import ABSENT, Candidates
from dragoman.types import FINISHED, KEPT, PRUNED


class Found(NamedTuple):
    """The best extensions of each source, (B, C) each, the best first."""

    parent: np.ndarray
    token: np.ndarray
    log_prob: np.ndarray
    total: np.ndarray


class Banks:
    """The banks of one step."""

    def __init__(self, leader: LeadingRule, eos: int, shrinks: bool) -> None:
        """``shrinks``: a hypothesis that ends takes a place of the beam."""
        self._leader, self._eos, self._shrinks = leader, eos, shrinks

    def choose(self, totals: np.ndarray) -> dict[int, list[int]]:
        """Return the live rows of each source whose places have to be divided."""
        width = totals.shape[1]
        bound = {}
        for source, own in enumerate(totals > -np.inf):
            rows = [source * width + row for row in np.flatnonzero(own).tolist()]
            if any(self._leader.is_bound(row) for row in rows):
                bound[source] = rows
        return bound

    def divide(self, bound: dict[int, list[int]], found: Found, fate: np.ndarray, log_probs: Tensor,
               totals: np.ndarray, places: np.ndarray) -> Candidates:  # fmt: skip
        """Return the candidates of all sources, with those of the ``bound`` ones chosen by their banks.

        ``log_probs`` (N, V) are those of the next token of each row, ``totals`` (B, k) the sums of the rows, ``places``
        (B,) the places of the beam of each source, ``fate`` (B, C) what becomes of the best extensions elsewhere.
        """
        width = totals.shape[1]
        best = log_probs.argmax(1).tolist()
        extended = {}
        for source, rows in bound.items():
            own_pairs = {
                (int(parent), int(token))
                for parent, token, total in zip(
                    found.parent[source], found.token[source], found.total[source], strict=True
                )
                if total > -np.inf
            }
            for row in rows:
                own_pairs |= {
                    (row - source * width, token) for token in (best[row], self._eos, *self._leader.proposals(row))
                }
            extended[source] = sorted(own_pairs)
        own = [(source, *pair) for source, pairs in extended.items() for pair in pairs]
        index = torch.tensor(
            [[source * width + parent, token] for source, parent, token in own], device=log_probs.device
        )
        numbers = log_probs[index[:, 0], index[:, 1]].cpu().numpy()
        chosen: dict[int, list[tuple[int, int, float, float, int]]] = {}
        begin = 0
        for source, pairs in extended.items():
            log_prob = numbers[begin : begin + len(pairs)]
            begin += len(pairs)
            total = totals[source, [parent for parent, _ in pairs]] + log_prob
            chosen[source] = self._choose(source * width, pairs, log_prob, total, int(places[source]))
        return _merge(found, fate, chosen)

    def _choose(
        self, first: int, pairs: list[tuple[int, int]], log_prob: np.ndarray, total: np.ndarray, places: int
    ) -> list[tuple[int, int, float, float, int]]:
        """Return the candidates of one source, the best first, with what becomes of them."""
        possible = [index for index in np.argsort(-total, kind="stable").tolist() if total[index] > -np.inf]
        banks: dict[int, list[int]] = {}
        for index in possible:
            parent, token = pairs[index]
            banks.setdefault(self._leader.need_after(first + parent, token), []).append(index)
        waiting = [banks[need] for need in sorted(banks)]
        taken: set[int] = set()
        while places and any(waiting):
            for bank in waiting:
                if bank and places:
                    index = bank.pop(0)
                    taken.add(index)
                    places -= int(self._shrinks or pairs[index][1] != self._eos)
        candidates = []
        for index in possible:
            parent, token = pairs[index]
            fate = PRUNED if index not in taken else FINISHED if token == self._eos else KEPT
            candidates.append((parent, token, float(log_prob[index]), float(total[index]), fate))
        return candidates


def _merge(found: Found, fate: np.ndarray, chosen: dict[int, list[tuple[int, int, float, float, int]]]) -> Candidates:
    """Return candidates in which those of some sources are replaced."""
    sources, columns = fate.shape
    wide = max(columns, *(len(candidates) for candidates in chosen.values()))
    arrays = (found.parent, found.token, found.log_prob, found.total, fate)
    fills = (0, 0, -np.inf, -np.inf, ABSENT)
    wider = []
    for array, fill in zip(arrays, fills, strict=True):
        grown = np.full((sources, wide), fill, array.dtype)
        grown[:, :columns] = array
        wider.append(grown)
    for source, candidates in chosen.items():
        for place, (array, fill) in enumerate(zip(wider, fills, strict=True)):
            array[source] = fill
            array[source, : len(candidates)] = [candidate[place] for candidate in candidates]
    return Candidates(*wider)
