"""The rows of a decoder while a search runs: one call per token; sources leave when they are done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from dragoman.errors import UserError
from dragoman.search.rules import Rule, apply_rules
from dragoman.types import State, Tree


class StepScores(Protocol):
    """What a search reads of a ``types.Step``."""

    @property
    def log_probs(self) -> Tensor: ...  # (N, T, V)

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
        rules: Sequence[Rule],
        eos: int,
        need_attention: bool,
    ) -> None:
        self.decoder = decoder
        self.rules = rules
        self.eos = eos
        self.need_attention = need_attention
        self.device = device_of(decoder, state)
        self.sources, self.width = len(opening), 1
        tokens = torch.from_numpy(opening).to(self.device)
        self.produced = tokens[:, 1:]  # (N, t)
        self.step = decoder(tokens, state, need_attention)
        log_probs = self.step.log_probs
        self.forced = log_probs[:, :-1].gather(2, self.produced.unsqueeze(2)).squeeze(2)  # (B, P)
        self.log_probs = log_probs[:, -1]  # (N, V) as the model reports them

    def allowed(self) -> Tensor:
        """Return the log-probabilities, with -inf for what the rules forbid."""
        return apply_rules(self.rules, self.produced, self.log_probs, self.eos)  # (N, V)

    def attention(self) -> np.ndarray | None:
        """Return where each row looked while it read the tokens of the last call."""
        if self.step.attention is None:
            return None
        weights = self.step.attention.float().cpu().numpy()  # (N, T, A, S)
        return weights.reshape(self.sources, self.width, *weights.shape[1:])  # (B, k, T, A, S)

    def advance(self, sources: np.ndarray, parent: np.ndarray, token: np.ndarray) -> None:
        """Continue with these sources only; the new rows (B', k') extend the rows ``parent`` of their source."""
        state = self.step.state
        produced = self.produced
        if len(sources) < self.sources:
            state = state.select(torch.from_numpy(sources).to(self.device))
        first = np.arange(len(sources))[:, None] * self.width
        rows = (first + parent).reshape(-1)  # (N',)
        if not np.array_equal(rows, np.arange(len(sources) * self.width)):
            state = state.reorder(torch.from_numpy(rows).to(self.device))
        tokens = torch.from_numpy(token.reshape(-1, 1)).to(self.device)
        if self.rules:
            origin = (sources[:, None] * self.width + parent).reshape(-1)
            produced = produced.index_select(0, torch.from_numpy(origin).to(self.device))
            self.produced = torch.cat([produced, tokens], 1)
        self.sources, self.width = token.shape
        self.step = self.decoder(tokens, state, self.need_attention)
        self.log_probs = self.step.log_probs[:, -1]


def device_of(decoder: SearchDecoder, state: State) -> torch.device:
    """Return the device for tokens: that of the state, or that of the decoder if the state holds no tensor yet."""
    for tree in (state.carry, state.fixed):
        tensor = _first_tensor(tree)
        if tensor is not None:
            return tensor.device
    if isinstance(decoder, torch.nn.Module):
        for parameter in decoder.parameters():
            return parameter.device
    return torch.device("cpu")


def _first_tensor(tree: Tree) -> Tensor | None:
    if isinstance(tree, Tensor):
        return tree
    return next((tensor for branch in tree.values() if (tensor := _first_tensor(branch)) is not None), None)


def check_scores(best: np.ndarray) -> None:
    """Refuse to search if a diverged model predicts NaN, or gives probability zero to every token."""
    if not (best > -np.inf).all():
        raise UserError(
            "the model's predictions are not probabilities (NaN, or zero for every token), so nothing can be searched: "
            "its training has diverged; train again with a smaller learning rate or use an earlier checkpoint"
        )
