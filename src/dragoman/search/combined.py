"""Several decoders that act as one. Each has the decoder's call, so every search works with them unchanged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dragoman.search.rows import SearchDecoder, StepScores
from dragoman.types import State


@dataclass(frozen=True, slots=True)
class Combined:
    """The scores of a step that several decoders made together."""

    log_probs: Tensor  # (N, T, V)
    state: State
    attention: Tensor | None = None  # (N, T, A, S)

    def next_log_probs(self) -> Tensor:
        """Return the scores after the last token, (N, V), as a new tensor that may be changed."""
        return self.log_probs[:, -1].clone()


class Renumbered:
    """A decoder with other token ids: ``ids`` (V,) maps each token id used here to the decoder's own."""

    def __init__(self, decoder: SearchDecoder, ids: Tensor) -> None:
        self.decoder, self.ids = decoder, ids

    def start(self, memory: Any, sources: int) -> State:
        return self.decoder.start(memory, sources)

    def __call__(self, tokens: Tensor, state: State, need_attention: bool = False) -> Combined:
        ids = self.ids.to(tokens.device)
        step = self.decoder(ids[tokens], state, need_attention)
        return Combined(step.log_probs.index_select(-1, ids), step.state, step.attention)


class Ensemble:
    """p(y_t) = the mean of the members' probabilities, at every step (Hansen & Salamon 1990; Sutskever et al. 2014).

    The memory is a list with one memory per member. Attention is that of the first member, because the others may
    tokenise the source differently.
    """

    def __init__(self, members: Sequence[SearchDecoder]) -> None:
        self.members = list(members)

    def start(self, memory: Sequence[Any], sources: int) -> State:
        return join([member.start(own, sources) for member, own in zip(self.members, memory, strict=True)])

    def __call__(self, tokens: Tensor, state: State, need_attention: bool = False) -> Combined:
        steps: list[StepScores] = [
            member(tokens, part, need_attention and not index)
            for index, (member, part) in enumerate(zip(self.members, split(state, len(self.members)), strict=True))
        ]
        log_probs = torch.stack([step.log_probs for step in steps])  # (members, N, T, V)
        mean = torch.logsumexp(log_probs, 0) - math.log(len(steps))
        return Combined(mean, join([step.state for step in steps]), steps[0].attention)


class Fusion:
    """log p(y_t | x) + weight * log p_lm(y_t): shallow fusion (Gulcehre et al. 2015, section 4.1).

    The sums are scores to rank by, not log-probabilities: their exponentials do not sum to one over the vocabulary. A
    weight of zero or more keeps them at or below zero, which is all that the searches rely on.
    """

    def __init__(self, decoder: SearchDecoder, language_model: SearchDecoder, weight: float) -> None:
        self.decoder, self.language_model, self.weight = decoder, language_model, weight

    def start(self, memory: Any, sources: int) -> State:
        return join([self.decoder.start(memory, sources), self.language_model.start(None, sources)])

    def __call__(self, tokens: Tensor, state: State, need_attention: bool = False) -> Combined:
        own, other = split(state, 2)
        step = self.decoder(tokens, own, need_attention)
        lm_step = self.language_model(tokens, other)
        scores = step.log_probs
        if self.weight:  # 0 * -inf would be NaN
            scores = scores + self.weight * lm_step.log_probs
        return Combined(scores, join([step.state, lm_step.state]), step.attention)


def join(states: Sequence[State]) -> State:
    """Return one state with a branch per member, so that all are reordered and selected together."""
    return State(
        states[0].sources,
        {str(index): state.fixed for index, state in enumerate(states)},
        {str(index): state.carry for index, state in enumerate(states)},
        {str(index): state.history for index, state in enumerate(states)},
    )


def split(state: State, members: int) -> list[State]:
    """Return the states that ``join`` put together."""
    return [
        State(
            state.sources,
            _branch(state.fixed, index),
            _branch(state.carry, index),
            _branch(state.history, index),
        )
        for index in range(members)
    ]


def _branch(tree: Any, index: int) -> Any:
    assert isinstance(tree, Mapping)
    return tree[str(index)]
