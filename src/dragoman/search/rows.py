"""The rows of a decoder while a search runs: one call per token; sources leave when they are done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from dragoman.errors import UserError
from dragoman.search.rules import NEVER, LeadingRule, Rule, RuleSet
from dragoman.types import State, first_tensor

BLOCKS = 100  # of a vocabulary whose best tokens are looked for block by block
LARGE = 1024  # tokens; smaller vocabularies are looked through as they are


class StepScores(Protocol):
    """What a search reads of a ``types.Step``."""

    @property
    def log_probs(self) -> Tensor: ...  # (N, T, V)

    def next_log_probs(self) -> Tensor: ...  # (N, V) after the last token; a new tensor that the caller may change

    @property
    def state(self) -> State: ...

    @property
    def attention(self) -> Tensor | None: ...  # (N, T, A, S)


class SearchDecoder(Protocol):
    """Anything that can be searched: a decoder, or several that act as one."""

    def start(self, memory: Any, sources: int) -> State: ...

    def __call__(self, tokens: Tensor, state: State, need_attention: bool = False) -> StepScores: ...


class DecoderRows:
    """The ``sources`` * ``width`` rows of a search, and the decoder's scores for the next token of each."""

    def __init__(
        self,
        decoder: SearchDecoder,
        state: State,
        opening: np.ndarray,  # (B, 1 + P): the start symbol and a forced prefix
        *,
        members: Sequence[int],  # the numbers of the sources
        rules: Sequence[Rule],
        eos: int,
        need_attention: bool,
        single: bool = False,  # each row is a path of its own: greedy search, sampling
    ) -> None:
        self.decoder, self.single = decoder, single
        self.need_attention = need_attention
        self.device = device_of(decoder, state)
        self.sources, self.width = len(opening), 1
        tokens = torch.from_numpy(opening).to(self.device)
        self.step = decoder(tokens, state, need_attention)
        self.rules: RuleSet | None = RuleSet(rules, eos) if rules else None
        if self.rules is not None:
            self.rules.start(members, opening[:, 1:])
        prefix = tokens[:, 1:]
        self.forced = np.zeros(prefix.shape, np.float32)  # (B, P) log-probabilities of the prefix
        if prefix.shape[1]:
            forced = self.step.log_probs[:, :-1].gather(2, prefix.unsqueeze(2)).squeeze(2)
            self.forced = forced.float().cpu().numpy()

    def allowed(self, live: np.ndarray) -> tuple[Tensor, Tensor]:
        """Return the log-probabilities (N, V), with -inf for what the rules forbid, and their ``block_maxima``.

        ``live`` (B, k) says which rows are hypotheses. The others only fill the array.
        """
        log_probs = self.step.next_log_probs()
        if self.rules is None:
            return log_probs, block_maxima(log_probs)
        wanted = log_probs.argmax(1) if self.single and self.leader is not None else None
        self.rules.forbid(log_probs, 0)
        if wanted is not None:
            self.rules.lead(log_probs, wanted)
        maxima = block_maxima(log_probs)
        blocked = (maxima.amax(1) == NEVER) & torch.from_numpy(live.reshape(-1)).to(self.device)  # (N,)
        if bool(blocked.any()):
            original = self.step.next_log_probs()
            for row in blocked.nonzero().flatten().tolist():
                log_probs[row] = self.rules.release(row, original[row])
            maxima = block_maxima(log_probs)
        return log_probs, maxima

    @property
    def may_die(self) -> bool:
        """Tell whether a rule may leave a row without any token."""
        return self.rules is not None and self.rules.has_hard

    @property
    def leader(self) -> LeadingRule | None:
        """The rule that wants something to occur in the outputs, if there is one."""
        return None if self.rules is None else self.rules.leader

    def attention(self) -> np.ndarray | None:
        """Return where each row looked while it read the tokens of the last call."""
        if self.step.attention is None:
            return None
        weights = self.step.attention.float().cpu().numpy()  # (N, T, A, S)
        return weights.reshape(self.sources, self.width, *weights.shape[1:])  # (B, k, T, A, S)

    def advance(self, sources: np.ndarray, parent: np.ndarray, token: np.ndarray) -> None:
        """Continue with these sources only; the new rows (B', k') extend the rows ``parent`` of their source."""
        state = self.step.state
        if len(sources) < self.sources:
            state = state.select(torch.from_numpy(sources).to(self.device))
        if parent.shape[1] != self.width or not (parent == np.arange(self.width)).all():
            rows = (np.arange(len(sources))[:, None] * self.width + parent).reshape(-1)  # (N',)
            state = state.reorder(torch.from_numpy(rows).to(self.device))
        if self.rules is not None:
            self.rules.advance((sources[:, None] * self.width + parent).reshape(-1), token.reshape(-1))
        self.sources, self.width = token.shape
        tokens = torch.from_numpy(token.reshape(-1, 1)).to(self.device)
        self.step = self.decoder(tokens, state, self.need_attention)


def block_maxima(log_probs: Tensor) -> Tensor:
    """Return the largest number of each block of (N, V); of a small vocabulary, the numbers themselves.

    Each block is a run of as many tokens; the last one may be shorter.
    """
    vocabulary = log_probs.shape[1]
    if vocabulary < LARGE:
        return log_probs
    size = block_size(vocabulary)
    whole = vocabulary // size
    maxima = log_probs[:, : whole * size].unflatten(1, (whole, size)).amax(-1)
    if whole * size < vocabulary:
        maxima = torch.cat([maxima, log_probs[:, whole * size :].amax(1, keepdim=True)], 1)
    return maxima


def block_size(vocabulary: int) -> int:
    """Return the tokens of a block of a large vocabulary."""
    return -(-vocabulary // BLOCKS)


def device_of(decoder: SearchDecoder, state: State) -> torch.device:
    """Return the device for tokens: that of the state, or that of the decoder if the state holds no tensor yet."""
    tensor = first_tensor(state)
    if tensor is not None:
        return tensor.device
    if isinstance(decoder, torch.nn.Module):
        for parameter in decoder.parameters():
            return parameter.device
    return torch.device("cpu")


def check_scores(best: np.ndarray, may_die: bool = False) -> None:
    """Refuse to search if a diverged model predicts NaN, or gives probability zero to every token.

    ``may_die``: a rule may have forbidden every token.
    """
    if np.isnan(best).any() or not (may_die or (best > -np.inf).all()):
        raise UserError(
            "the model's predictions are not probabilities (NaN, or zero for every token), so nothing can be searched: "
            "its training has diverged; train again with a smaller learning rate or use an earlier checkpoint"
        )
