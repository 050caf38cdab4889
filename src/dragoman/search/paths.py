"""Single paths: sampled ones, and given (forced) ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dragoman.errors import UserError
from dragoman.search.options import SearchConfig
from dragoman.search.rows import DecoderRows, SearchDecoder, check_scores, device_of
from dragoman.search.trace import ABSENT, Candidates, Result, forced_result
from dragoman.types import FINISHED, KEPT, Hypothesis, State

BLOCK = 64  # random numbers drawn at once


class Sampler:
    """Draw one token per row at random. Temperature, top-k and top-p shape the draw.

    The log-probabilities reported are the model's own.

    Each row needs one uniform number per token. It comes from a generator seeded by (seed, key of the source, row), so
    neither the batch, nor the device, nor the number of further samples changes what is drawn for a source.
    """

    def __init__(self, config: SearchConfig, keys: Sequence[int], eos: int) -> None:
        self.config = config
        self.eos = eos
        self.generators = [
            [np.random.default_rng([config.seed, key % 2**64, row]) for row in range(config.samples)] for key in keys
        ]
        self.numbers = np.zeros((len(keys), config.samples, BLOCK), np.float32)
        self.drawn = 0

    def choose(self, rows: DecoderRows, totals: np.ndarray, active: np.ndarray) -> Candidates:
        """Return what was drawn for the ``active`` sources, whose live rows have the sums ``totals`` (B, k)."""
        allowed, _ = rows.allowed(totals > -np.inf)  # (N, V)
        parent = np.broadcast_to(np.arange(totals.shape[1]), totals.shape)
        if not self.drawn and self.config.samples > 1:  # draw several from the one row of a source
            parent = np.zeros((len(totals), self.config.samples), np.int64)
            totals = np.repeat(totals, self.config.samples, axis=1)
            allowed = allowed.repeat_interleave(self.config.samples, 0)
        uniform = self._uniform(active, totals.shape[1])
        chosen = draw(allowed, torch.from_numpy(uniform.reshape(-1)).to(allowed.device), self.config)  # (N,)
        log_prob = allowed.gather(1, chosen.unsqueeze(1)).cpu().numpy().reshape(totals.shape)
        check_scores(log_prob[totals > -np.inf], rows.may_die)
        token = chosen.cpu().numpy().reshape(totals.shape)
        fate = np.where(token == self.eos, FINISHED, KEPT).astype(np.int8)
        total = totals + log_prob
        fate[total == -np.inf] = ABSENT
        return Candidates(parent, token, log_prob, total, fate)

    def satisfied(self, candidates: Candidates, active: np.ndarray, length: int) -> np.ndarray:
        return np.zeros(len(active), bool)

    def _uniform(self, active: np.ndarray, width: int) -> np.ndarray:
        """Return the next uniform number of each row, (B, k)."""
        position = self.drawn % BLOCK
        if position == 0:
            for source in active.tolist():
                for row in range(width):
                    self.numbers[source, row] = self.generators[source][row].random(BLOCK, np.float32)
        self.drawn += 1
        return self.numbers[active, :width, position]


def draw(log_probs: Tensor, uniform: Tensor, config: SearchConfig) -> Tensor:
    """Draw one token per row of ``log_probs`` (N, V), by inverting the cumulative distribution at ``uniform`` (N,)."""
    scores = log_probs / config.temperature
    order: Tensor | None = None
    if config.top_p < 1 or 0 < config.top_k < scores.shape[1]:
        scores, order = scores.sort(dim=1, descending=True, stable=True)
        if config.top_k:
            scores, order = scores[:, : config.top_k], order[:, : config.top_k]
    probabilities = scores.softmax(1)
    if config.top_p < 1:
        before = probabilities.cumsum(1) - probabilities
        probabilities = probabilities.masked_fill(before >= config.top_p, 0)
    cumulative = probabilities.cumsum(1)
    target = uniform.unsqueeze(1) * cumulative[:, -1:]
    chosen = torch.searchsorted(cumulative, target, right=True)
    chosen = chosen.clamp_max(probabilities.shape[1] - 1)
    # Rounding in a parallel sum can land on a token of probability zero; the likeliest is then as good as any.
    impossible = probabilities.gather(1, chosen) == 0
    chosen = torch.where(impossible, probabilities.argmax(1, keepdim=True), chosen)
    return (chosen if order is None else order.gather(1, chosen)).squeeze(1)


@torch.inference_mode()
def force(
    decoder: SearchDecoder,
    memory: Any,
    sources: int,
    targets: Sequence[Sequence[int]],
    *,
    bos: int,
    eos: int | None = None,
    config: SearchConfig | None = None,
    need_attention: bool = False,
) -> list[Hypothesis]:
    """Score one given target per source, in one call, and return the targets as hypotheses.

    The score is the sum of the log-probabilities, normalised as ``config`` says. With ``eos``, targets that do not end
    in it count as unfinished. An impossible target has the score -inf.
    """
    if len(targets) != sources:
        raise UserError(f"forced scoring needs one target per source: got {len(targets)} targets for {sources} sources")
    if not sources:
        return []
    config = config or SearchConfig(normalize="none")
    state = decoder.start(memory, sources)
    return [
        result.best if result.hypotheses else Hypothesis((), (), 0.0, eos is None, ())
        for result in follow(decoder, state, targets, bos=bos, eos=eos, config=config, need_attention=need_attention)
    ]


def rescore(
    decoder: SearchDecoder, memory: Any, results: Sequence[Result], *, bos: int, eos: int, config: SearchConfig
) -> list[Result]:
    """Return the same outputs with the log-probabilities of ``decoder``, where another decoder was searched with."""
    width = max(len(result.hypotheses) for result in results)
    if not width:
        return list(results)
    state = decoder.start(memory, len(results)).spread(width)
    paths = [
        result.hypotheses[min(rank, len(result.hypotheses) - 1)].tokens if result.hypotheses else ()
        for result in results
        for rank in range(width)
    ]  # in one call, the k outputs of a source side by side
    own = follow(decoder, state, paths, bos=bos, eos=eos, config=config, need_attention=False)
    rescored = []
    for source, result in enumerate(results):
        mine = own[source * width : source * width + len(result.hypotheses)]
        pairs = zip(result.hypotheses, mine, strict=True)
        hypotheses = tuple(replace(hypothesis, log_probs=forced.best.log_probs) for hypothesis, forced in pairs)
        rescored.append(Result(hypotheses, result.trace))
    return rescored


def follow(
    decoder: SearchDecoder,
    state: State,
    targets: Sequence[Sequence[int]],
    *,
    bos: int,
    eos: int | None,
    config: SearchConfig,
    need_attention: bool,
    trace: bool = False,
) -> list[Result]:
    """Return each target as the result of a search without choice. Padding follows the tokens: causality hides it."""
    longest = max(1, *(len(target) for target in targets))
    tokens = np.zeros((len(targets), longest + 1), np.int64)  # (B, 1 + T), padded with a token that surely exists
    tokens[:, 0] = bos
    for row, target in enumerate(targets):
        tokens[row, 1 : 1 + len(target)] = target
    forced = torch.from_numpy(tokens).to(device_of(decoder, state))
    step = decoder(forced[:, :-1], state, need_attention)
    picked = step.log_probs.gather(2, forced[:, 1:].unsqueeze(2)).squeeze(2)  # (B, T)
    log_probs = picked.float().cpu().numpy()
    attention = None if step.attention is None else step.attention.float().cpu().numpy()  # (B, T, A, S)
    results = []
    for row, target in enumerate(targets):
        length = len(target)
        finished = eos is None or (length > 0 and target[-1] == eos)
        weights = None if attention is None else attention[row, :length].copy()
        results.append(forced_result(tuple(target), log_probs[row, :length], weights, finished, config, trace))
    return results
