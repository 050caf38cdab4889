"""Beam search: extend the k best hypotheses by all V tokens and prune to k. Greedy search is a beam of one."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from dragoman.search.banks import Banks, Found
from dragoman.search.options import SearchConfig
from dragoman.search.rows import DecoderRows, block_size, check_scores
from dragoman.search.trace import ABSENT, Candidates
from dragoman.types import FINISHED, KEPT, PRUNED

FEW = 4  # sources whose candidates are looked for one by one, without torch


class Beam:
    """Choose by summed log-probability among all extensions of the live rows.

    The vocabulary is reduced on the device; only the candidates of each source are brought to the host. Sums are kept
    in double precision. Equal sums are ordered by row and token, and nothing here looks across sources, so the rest
    of the batch does not matter to a source.
    """

    def __init__(self, config: SearchConfig, limits: np.ndarray, eos: int, need_pruned: bool) -> None:
        """``need_pruned``: return the best of the pruned candidates too, for a trace."""
        self.config = config
        self.limits = limits  # (B,)
        self.eos = eos
        self.shrinks = config.stop == "complete" or config.beam == 1
        # At most k of 2 k candidates end, so k that live on are among them if they exist. A beam that shrinks by those
        # that end looks at k of them only.
        self.considered = config.beam if self.shrinks and not need_pruned else 2 * config.beam
        self.width = np.full(len(limits), config.beam)
        self.finished = np.full((len(limits), config.n_best), -np.inf)  # the best finished scores, best first

    def choose(self, rows: DecoderRows, totals: np.ndarray, active: np.ndarray) -> Candidates:
        """Return the best candidates of the ``active`` sources, whose live rows have the sums ``totals`` (B, k)."""
        log_probs, maxima = rows.allowed(totals > -np.inf)
        parent, token, log_prob, total = best_extensions(log_probs, maxima, totals, self.considered)
        live = totals[:, 0] > -np.inf  # a source that is done has no live row
        check_scores(total[live].max(1), rows.may_die)

        places = self.width[active]
        fate = prune(token, total, places, self.eos, self.shrinks)
        candidates = Candidates(parent, token, log_prob, total, fate)
        if rows.leader is not None and self.config.beam > 1:
            banks = Banks(rows.leader, self.eos, self.shrinks)
            if bound := banks.choose(totals):
                found = Found(parent, token, log_prob, total)
                candidates = banks.divide(bound, found, fate, log_probs, totals, places)
        if self.shrinks:
            self.width[active] -= (candidates.fate == FINISHED).sum(1)
        return candidates

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


def prune(token: np.ndarray, total: np.ndarray, width: np.ndarray, eos: int, shrinks: bool) -> np.ndarray:
    """Return what becomes of the candidates of each source, (B, C), the best of which come first."""
    possible = total > -np.inf
    ends = token == eos
    if shrinks:
        taken = possible & (np.arange(total.shape[1]) < width[:, None])
    else:
        lives = possible & ~ends
        taken = possible & (np.cumsum(lives, axis=1) - lives < width[:, None])
    return np.where(taken, np.where(ends, FINISHED, KEPT), np.where(possible, PRUNED, ABSENT)).astype(np.int8)


def best_extensions(
    log_probs: Tensor, maxima: Tensor, totals: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the ``count`` best extensions of each source: parent, token, log-probability and total, (B, C) each.

    ``log_probs`` (N, V) are those of the next token of each row, ``maxima`` their ``block_maxima``, ``totals`` (B, k)
    the sums of the rows. The best extensions come first; of equal ones, those of the lower row and the lower token.

    An extension among the ``count`` best is in one of the ``count`` blocks with the best maxima, so only these are
    looked through. ``topk`` does not say which of several equal numbers it takes. One number more than asked for shows
    the sources where that matters, and only for those all extensions are sorted.
    """
    sources, width = totals.shape
    vocabulary = log_probs.shape[1]
    count = min(count, width * vocabulary)
    if count == width == 1:
        return _best_of_single(log_probs, maxima, totals)
    if sources <= FEW and log_probs.device.type == "cpu":
        shape = sources, width, -1
        few = _best_of_few(log_probs.numpy().reshape(shape), maxima.numpy().reshape(shape), totals, count)
        if few is not None:
            return few
    before = torch.from_numpy(totals).to(log_probs.device)[:, :, None]  # (B, k, 1)
    blocks = maxima.shape[1]
    sums = (maxima.view(sources, width, blocks) + before).flatten(1)  # (B, k * blocks), double
    best, unsure = _top(sums, count)
    source_rows = torch.arange(0, sources * width, width, device=log_probs.device)[:, None]  # (B, 1)
    if blocks == vocabulary:
        row, token = best // vocabulary, best % vocabulary
    else:
        size = block_size(vocabulary)
        row = (best // blocks).repeat_interleave(size, 1)  # (B, count * size)
        token = ((best % blocks * size)[:, :, None] + torch.arange(size, device=best.device)).flatten(1)
        inside = token.clamp_max(vocabulary - 1)  # the last block may be shorter
        found = torch.take(log_probs, (source_rows + row) * vocabulary + inside)
        sums = torch.where(token < vocabulary, found + before.squeeze(2).gather(1, row), -torch.inf)
        best, tied = _top(sums, count)
        unsure = unsure | tied
        row, token = row.gather(1, best), inside.gather(1, best)
    for source in unsure.nonzero().flatten().tolist():
        everything = log_probs[source * width : (source + 1) * width] + before[source]  # (k, V), double
        order = everything.flatten().sort(descending=True, stable=True).indices[:count]
        row[source], token[source] = order // vocabulary, order % vocabulary
    log_prob = torch.take(log_probs, (source_rows + row) * vocabulary + token).cpu().numpy()
    parent, tokens = row.cpu().numpy(), token.cpu().numpy()
    total = totals[np.arange(sources)[:, None], parent] + log_prob
    if (total[:, 1:] == total[:, :-1]).any():  # equal ones are in no order yet
        which = np.arange(sources)[:, None], np.lexsort((tokens, parent, -total), axis=-1)
        return parent[which], tokens[which], log_prob[which], total[which]
    return parent, tokens, log_prob, total


def _best_of_few(
    log_probs: np.ndarray, maxima: np.ndarray, totals: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None:
    """Do what ``best_extensions`` does for few sources, whose numbers are (B, k, V) and (B, k, blocks).

    This takes less time than operations of torch, each of which costs more than its work. None: a source has fewer
    extensions than ``count``.
    """
    parents, tokens = [], []
    for each in zip(log_probs, maxima, totals, strict=True):
        best = _best_of_source(*each, count)
        if best is None:
            return None
        parents.append(best[0])
        tokens.append(best[1])
    parent, token = np.array(parents), np.array(tokens)
    which = np.arange(len(totals))[:, None]
    log_prob = log_probs[which, parent, token]
    return parent, token, log_prob, totals[which, parent] + log_prob


def _best_of_source(
    log_probs: np.ndarray, maxima: np.ndarray, before: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return parent and token of the ``count`` best extensions of one source, (C,) each.

    ``log_probs`` (k, V), ``maxima`` (k, blocks), ``before`` (k,). None: there are not so many.
    """
    highest = maxima + before[:, None]  # double
    if highest.size < count:
        return None
    bound = np.partition(highest, -count, axis=None)[
        -count
    ]  # at least ``count`` extensions reach it, one in each block
    if bound == -np.inf or np.isnan(highest.max()):  # too few are possible; the model has diverged
        return None
    row, block = np.nonzero(highest >= bound)
    vocabulary = log_probs.shape[1]
    size = 1 if maxima.shape[1] == vocabulary else block_size(vocabulary)
    token = block[:, None] * size + np.arange(size)
    total = log_probs[row[:, None], np.minimum(token, vocabulary - 1)] + before[row, None]
    which, inside = np.nonzero((total >= bound) & (token < vocabulary))  # the last block may be shorter
    parent, token, total = row[which], token[which, inside], total[which, inside]
    order = np.lexsort((token, parent, -total))[:count]
    return parent[order], token[order]


def _best_of_single(
    log_probs: Tensor, maxima: Tensor, totals: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the best extension of each source, where each has one row; ``argmax`` returns the first of equal ones."""
    vocabulary = log_probs.shape[1]
    if len(log_probs) <= FEW and log_probs.device.type == "cpu":
        numbers = log_probs.numpy()
        best = numbers.argmax(1)[:, None]
        log_prob = numbers[np.arange(len(best))[:, None], best]
        return np.zeros_like(totals, np.int64), best, log_prob, totals + log_prob
    token = maxima.argmax(1, keepdim=True)  # (B, 1): the token, or the block that it is in
    if maxima.shape[1] < vocabulary:
        size = block_size(vocabulary)
        inside = (token * size + torch.arange(size, device=token.device)).clamp_max(vocabulary - 1)  # (B, size)
        token = inside.gather(1, log_probs.gather(1, inside).argmax(1, keepdim=True))
    log_prob = log_probs.gather(1, token).cpu().numpy()
    return np.zeros_like(totals, np.int64), token.cpu().numpy(), log_prob, totals + log_prob


def _top(sums: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the places of the ``count`` largest of each row, (B, count), and where equal ones were left out, (B,)."""
    top = sums.topk(min(count + 1, sums.shape[1]), dim=1)
    if top.values.shape[1] <= count:
        return top.indices, torch.zeros(len(sums), dtype=torch.bool, device=sums.device)
    last, next_one = top.values[:, -2], top.values[:, -1]
    return top.indices[:, :count], (last == next_one) & (next_one > -torch.inf)
