"""Monotone attention sums over alignments exactly: compared with listing them all."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from law_cases import make_decoder, make_memory, rows_of

from dragoman.config import ConfigError
from dragoman.errors import UserError
from dragoman.nn.decoders.monotone import Monotone
from dragoman.types import Memory

BOS = 2


def row(memory: Memory, index: int) -> Memory:
    """One row without its padding."""
    one, length = rows_of(memory, [index]), int(memory.mask[index].sum())
    return Memory(one.states[:, :length], one.mask[:, :length], summary=one.summary)


def listed(decoder: Monotone, memory: Memory, tokens: list[int]) -> float:
    """Sum the probability of the tokens over all alignments that never go back."""
    state: Any = decoder.start(memory, 1)
    inputs = torch.tensor([[BOS, *tokens[:-1]]])
    outputs, _ = decoder.stack(decoder.embedding(inputs), state.carry["hidden"])
    assert decoder.attention is not None
    scores = decoder.attention.weigh(outputs, state.fixed["scores"])[0, :, 0].log()  # (T, S)
    features = torch.tanh(decoder.from_state(outputs)[0][:, None] + state.fixed["source"][0])
    emissions = decoder.project(features).log_softmax(-1)  # (T, S, V)
    positions = scores.shape[1]

    def move(t: int, before: int, after: int) -> float:
        def score(a: int) -> float:
            jump = 0.0 if decoder.jumps is None else float(decoder.jumps[min(a - before, len(decoder.jumps) - 1)])
            return float(scores[t, a]) + jump

        allowed = torch.tensor([score(a) for a in range(before, positions)])
        return score(after) - float(allowed.logsumexp(0))

    totals = []
    for path in itertools.combinations_with_replacement(range(positions), len(tokens)):
        total, before = 0.0, 0
        for t, (after, token) in enumerate(zip(path, tokens, strict=True)):
            total += move(t, before, after) + float(emissions[t, after, token])
            before = after
        totals.append(total)
    return float(torch.tensor(totals, dtype=torch.double).logsumexp(0))


@pytest.mark.parametrize("settings", [{"order": 0}, {"order": 1, "longest_jump": 2}])
@torch.no_grad()
def test_the_probability_of_an_output_is_the_sum_over_its_alignments(settings: dict[str, Any]) -> None:
    memory = make_memory()
    decoder = make_decoder(("monotone", settings), memory)
    if decoder.jumps is not None:
        decoder.jumps.copy_(torch.tensor([0.5, -0.3, -1.0]))
    for index in (1, 2, 3):
        tokens = [4, 4, 7, 3][: index + 1]
        step = decoder(torch.tensor([[BOS, *tokens[:-1]]]), decoder.start(row(memory, index), 1))
        got = step.log_probs[0].gather(1, torch.tensor(tokens)[:, None]).sum()
        assert float(got) == pytest.approx(listed(decoder, row(memory, index), tokens), abs=1e-4)


@torch.no_grad()
def test_the_attention_moves_forward() -> None:
    """The expected position never falls where the tokens read tell nothing new about it."""
    memory = make_memory()
    decoder = make_decoder(("monotone", {}), memory)
    decoder.project.weight.zero_()  # then every token is as likely at every position
    step = decoder(torch.full((4, 6), 5), decoder.start(memory, 4), need_attention=True)
    expected = (step.attention[:, :, 0] * torch.arange(memory.mask.shape[1])).sum(-1)  # (N, T)
    assert (expected.diff(dim=1) >= -1e-5).all()


def test_a_score_that_sees_the_last_weights_is_refused() -> None:
    with pytest.raises(ConfigError, match="sums over all alignments"):
        make_decoder(("monotone", {"attention": {"kind": "location"}}), make_memory())


def test_it_is_not_lowered_and_says_so() -> None:
    memory = make_memory()
    decoder = make_decoder(("monotone", {}), memory)
    with pytest.raises(UserError, match=r"the decoder 'monotone' .* has no `lower` method"):
        decoder.lower(None, None)
