"""Beam search: extend the k best hypotheses by all V tokens and prune to k. Greedy search is a beam of one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dragoman.search.options import SearchConfig
from dragoman.search.rows import DecoderRows, check_scores
from dragoman.types import FINISHED, KEPT, PRUNED

ABSENT = -1  # fills the arrays of sources that have fewer candidates than others


@dataclass(frozen=True, slots=True)
class Candidates:
    """The candidates of one step for all sources of a batch; each row becomes a ``Frontier``."""

    parent: np.ndarray  # (B, C) the row of the source that the candidate extends
    token: np.ndarray  # (B, C)
    log_prob: np.ndarray  # (B, C)
    total: np.ndarray  # (B, C) float64
    fate: np.ndarray  # (B, C) PRUNED, KEPT, FINISHED, or ABSENT


class Beam:
    """Choose by summed log-probability among all extensions of the live rows.

    The vocabulary is reduced on the device, row by row; only the best 2k of each row are brought to the host, where
    sums are kept in double precision. Equal sums are ordered by row and token, and nothing here looks across
    sources, so the rest of the batch does not matter to a source.
    """

    def __init__(self, config: SearchConfig, limits: np.ndarray, eos: int) -> None:
        self.config = config
        self.limits = limits  # (B,)
        self.eos = eos
        self.shrinks = config.stop == "complete" or config.beam == 1
        self.width = np.full(len(limits), config.beam)
        self.finished = np.full((len(limits), config.n_best), -np.inf)  # the best finished scores, best first

    def choose(self, rows: DecoderRows, totals: np.ndarray, active: np.ndarray) -> Candidates:
        """Return the best candidates of the ``active`` sources, whose live rows have the sums ``totals`` (B, k)."""
        considered = 2 * self.config.beam  # at most k of them end, so k that live on are among them if they exist
        sources, width = totals.shape
        best = best_tokens(rows.allowed(), considered)
        log_prob, token = (array.reshape(sources, -1) for array in best)  # (B, k * C)
        each = log_prob.shape[1] // width
        parent = np.broadcast_to(np.repeat(np.arange(width), each), token.shape)
        before = np.repeat(totals, each, axis=1)
        total = np.where(before > -np.inf, before + log_prob, -np.inf)
        check_scores(total.max(1))
        order = np.lexsort((token, parent, -total), axis=-1)[:, :considered]
        parent, token, log_prob, total = (
            np.take_along_axis(array, order, axis=1) for array in (parent, token, log_prob, total)
        )

        possible = total > -np.inf
        ends = token == self.eos
        remaining = self.width[active][:, None]
        if self.shrinks:
            taken = possible & (np.arange(total.shape[1]) < remaining)
        else:
            lives = possible & ~ends
            taken = possible & (np.cumsum(lives, axis=1) - lives < remaining)
        fate = np.full(total.shape, PRUNED, np.int8)
        fate[taken] = KEPT
        fate[taken & ends] = FINISHED
        fate[~possible] = ABSENT
        if self.shrinks:
            self.width[active] -= (fate == FINISHED).sum(1)
        return Candidates(parent, token, log_prob, total, fate)

    def satisfied(self, candidates: Candidates, active: np.ndarray, length: int) -> np.ndarray:
        """Return for each source, (B,), whether no live hypothesis can still beat the finished ones asked for."""
        if self.shrinks:
            return np.zeros(len(active), bool)
        penalty = self.config.penalty
        scores = np.where(candidates.fate == FINISHED, candidates.total / penalty(length), -np.inf)
        together = np.concatenate([self.finished[active], scores], axis=1)
        self.finished[active] = -np.sort(-together, axis=1)[:, : self.config.n_best]
        live = np.where(candidates.fate == KEPT, candidates.total, -np.inf).max(1)  # (B,)
        longest = np.array([penalty(int(limit)) for limit in self.limits[active]])
        settled: np.ndarray = self.finished[active, -1] >= live / longest
        return settled


def best_tokens(log_probs: Tensor, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ``count`` best of each row of (N, V), as log-probabilities and tokens; of ties, the lower token.

    ``topk`` does not say which of several equal values it takes. One value more than asked for shows the rows where
    that matters, and only those are sorted.
    """
    count = min(count, log_probs.shape[1])
    top = log_probs.topk(min(count + 1, log_probs.shape[1]), dim=1)
    values, tokens = top.values.cpu().numpy(), top.indices.cpu().numpy()
    if values.shape[1] > count:
        tied = np.flatnonzero((values[:, -1] == values[:, -2]) & (values[:, -1] > -np.inf))
        values, tokens = values[:, :count], tokens[:, :count]
        if len(tied):
            ties = log_probs.index_select(0, torch.from_numpy(tied).to(log_probs.device))
            ordered = ties.sort(dim=1, descending=True, stable=True)
            tokens[tied] = ordered.indices[:, :count].cpu().numpy()
    return values, tokens
