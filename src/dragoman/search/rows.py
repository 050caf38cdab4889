"""The rows of a decoder while a search runs: one call a token, and whole sources leaving when they are done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from dragoman.errors import UserError
from dragoman.search.rules import Rule, permitted
from dragoman.types import State, Tree


class Prediction(Protocol):
    """What a search reads of a ``types.Step``."""

    @property
    def log_probs(self) -> Tensor: ...  # (N, T, V)

    @property
    def state(self) -> State: ...

    @property
    def attention(self) -> Tensor | None: ...  # (N, T, A, S)


class Decodes(Protocol):
    """Anything that can be searched: a decoder, or several that answer as one."""

    def start(self, memory: Any, sources: int) -> State: ...

    def __call__(self, tokens: Tensor, state: State, need_attention: bool = False) -> Prediction: ...


class Rows:
    """``sources`` * ``width`` rows, and what the decoder predicts for each after the tokens it was given."""

    def __init__(
        self,
        decoder: Decodes,
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
        """The log-probabilities with what the rules forbid at -inf."""
        return permitted(self.rules, self.produced, self.log_probs, self.eos)  # (N, V)

    def attention(self) -> np.ndarray | None:
        """Where each row looked for the tokens of the last call."""
        if self.step.attention is None:
            return None
        seen = self.step.attention.float().cpu().numpy()  # (N, T, A, S)
        return seen.reshape(self.sources, self.width, *seen.shape[1:])  # (B, k, T, A, S)

    def advance(self, sources: np.ndarray, parent: np.ndarray, token: np.ndarray) -> None:
        """Go on with these sources only; the new rows (B', k') extend the rows ``parent`` of their source."""
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


def device_of(decoder: Decodes, state: State) -> torch.device:
    """Where the tokens must go: the device of the state, or of the decoder where the state holds no tensor yet."""
    for tree in (state.carry, state.fixed):
        found = _first(tree)
        if found is not None:
            return found.device
    if isinstance(decoder, torch.nn.Module):
        for parameter in decoder.parameters():
            return parameter.device
    return torch.device("cpu")


def _first(tree: Tree) -> Tensor | None:
    if isinstance(tree, Tensor):
        return tree
    return next((found for branch in tree.values() if (found := _first(branch)) is not None), None)


def check_numbers(best: np.ndarray) -> None:
    """A diverged model predicts NaN, or nothing at all; no search over that means anything."""
    if not (best > -np.inf).all():
        raise UserError(
            "the model's predictions are not probabilities (NaN, or zero for every token), so nothing can be searched: "
            "its training has diverged; train again with a smaller learning rate or use an earlier checkpoint"
        )
