"""The laws of ``contracts.Attention``, for every file of the folder, and the worked numbers."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from law_cases import close, make_attention, make_memory
from torch import Tensor

from dragoman.nn.blocks.scored_attention import ScoredAttention
from dragoman.parts import kinds
from dragoman.types import Memory

every_attention = pytest.mark.parametrize("kind", kinds("attention"))


def queries(batch: int = 4, count: int = 3) -> Tensor:
    torch.manual_seed(8)
    return torch.randn(batch, count, 12) * 2


def previous(attention: Any, batch: int = 4, count: int = 3) -> Tensor | None:
    """Where the queries looked the step before, for those that want to know."""
    if not attention.recurrent:
        return None
    torch.manual_seed(9)
    memory = make_memory()
    scores = torch.randn(batch, count, attention.maps, memory.mask.shape[1]) * 2
    return scores.masked_fill(~memory.mask[:, None, None], float("-inf")).softmax(-1)


@every_attention
def test_weights_are_a_distribution_and_padding_gets_exactly_nothing(kind) -> None:
    attention, memory = make_attention(kind), make_memory()
    attended = attention(queries(), attention.prepare(memory), previous(attention))
    weights = attended.weights  # (B, Q, A, S)
    assert weights.shape == (4, 3, attention.maps, memory.mask.shape[1])
    assert attended.context.shape == (4, 3, attention.width)
    assert close(weights.sum(-1), torch.ones(4, 3, attention.maps))
    assert (weights >= 0).all()
    assert (weights.masked_select(~memory.mask[:, None, None]) == 0).all()


@every_attention
def test_the_memory_is_a_set(kind) -> None:
    attention, memory = make_attention(kind), make_memory()
    if attention.recurrent:
        return  # it knows the order by where it looked the step before
    order = torch.randperm(memory.mask.shape[1])
    shuffled = Memory(memory.states[:, order], memory.mask[:, order])
    plain = attention(queries(), attention.prepare(memory))
    other = attention(queries(), attention.prepare(shuffled))
    assert close(plain.context, other.context)
    assert close(plain.weights[..., order], other.weights)


@every_attention
def test_queries_do_not_see_each_other(kind) -> None:
    attention, memory = make_attention(kind), make_memory()
    prepared, asked, last = attention.prepare(memory), queries(), previous(attention)
    together = attention(asked, prepared, last)
    for index in range(3):
        alone = attention(asked[:, index : index + 1], prepared, None if last is None else last[:, index : index + 1])
        assert close(alone.context[:, 0], together.context[:, index])
        assert close(alone.weights[:, 0], together.weights[:, index])


@every_attention
def test_what_stands_on_padding_does_not_matter(kind) -> None:
    attention, memory = make_attention(kind), make_memory()
    rubbish = memory.states.clone()
    rubbish[~memory.mask] = 50.0
    plain = attention(queries(), attention.prepare(memory), previous(attention))
    other = attention(queries(), attention.prepare(Memory(rubbish, memory.mask)), previous(attention))
    assert close(plain.context, other.context)


@every_attention
def test_gradient_reaches_every_parameter(kind) -> None:
    attention, memory = make_attention(kind), make_memory()
    attended = attention(queries().requires_grad_(), attention.prepare(memory), previous(attention))
    attended.context.square().sum().backward()
    for key, parameter in attention.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, key


@pytest.mark.parametrize("kind", ["bilinear", "additive", "concat", "location"])
def test_sides_of_different_widths(kind) -> None:
    attention = make_attention(kind, query_width=5)
    attended = attention(torch.randn(4, 2, 5), attention.prepare(make_memory()))
    assert attended.context.shape == (4, 2, 12)


@pytest.mark.parametrize("kind", ["additive", "concat"])
def test_mlp_scores_are_what_the_formula_says(kind) -> None:
    """Value and gradient, against the formula written out with torch's own tanh."""
    attention, memory = make_attention(kind), make_memory()
    asked = queries().requires_grad_()
    states = memory.states.clone().requires_grad_()
    scores = attention.score(asked, attention.keys(states))
    if kind == "additive":
        hidden = attention.query(asked)[:, :, None] + attention.key(states)[:, None]
    else:
        pairs = torch.cat(
            [states[:, None].expand(-1, 3, -1, -1), asked[:, :, None].expand(-1, -1, states.shape[1], -1)], -1
        )
        hidden = attention.joint(pairs)
    written = torch.tanh(hidden) @ attention.vector
    assert close(scores, written, 1e-5)
    weights = torch.randn_like(scores)
    inputs = [asked, states, *attention.parameters()]
    ours = torch.autograd.grad((scores * weights).sum(), inputs, retain_graph=True)
    theirs = torch.autograd.grad((written * weights).sum(), inputs)
    assert all(close(a, b, 1e-4) for a, b in zip(ours, theirs, strict=True))


def test_location_is_what_the_formula_says() -> None:
    """Chorowski et al. 2015, eq. 8 and 9, written out position by position."""
    attention, memory, asked = make_attention("location"), make_memory(), queries()
    last = previous(attention)
    filters = attention.filters.weight[:, 0]  # (filters, kernel)
    reach, length = filters.shape[1] // 2, memory.mask.shape[1]
    scores = torch.full((4, 3, length), float("-inf"))
    for b, q, j in itertools.product(range(4), range(3), range(length)):
        if memory.mask[b, j]:
            seen = sum(filters[:, i - j + reach] * last[b, q, 0, i] for i in range(length) if abs(i - j) <= reach)
            hidden = attention.query(asked[b, q]) + attention.key(memory.states[b, j]) + attention.place.weight @ seen
            scores[b, q, j] = torch.tanh(hidden) @ attention.vector
    found = attention(asked, attention.prepare(memory), last)
    assert close(found.weights[:, :, 0], scores.softmax(-1))
    first = attention(asked, attention.prepare(memory), torch.zeros_like(last))
    assert close(first.weights, attention(asked, attention.prepare(memory)).weights)  # nothing was looked at


class Given(ScoredAttention):
    """Scores that are given, to see mask, softmax and sum alone."""

    def score(self, query: Tensor, keys: Tensor) -> Tensor:
        return query


def test_worked_numbers_of_the_softmax() -> None:
    memory = Memory(torch.eye(3)[None], torch.ones(1, 3, dtype=torch.bool))
    given = Given(None, query_width=3, memory_width=3)
    weights = given(torch.tensor([[[13.0, 9.0, 9.0]]]), given.prepare(memory)).weights
    assert [round(value, 2) for value in weights.flatten().tolist()] == [0.96, 0.02, 0.02]
    weights = given(torch.tensor([[[0.606, 0.2, -0.8]]]), given.prepare(memory)).weights
    assert [round(value, 3) for value in weights.flatten().tolist()] == [0.523, 0.349, 0.128]


def test_worked_numbers_of_cat_and_dog() -> None:
    cat, dog = torch.tensor([0.6, 0.3, 0.8]), torch.tensor([0.5, 0.1, 0.9])
    dot, scaled = (make_attention(kind, 3, 3) for kind in ("dot", "scaled_dot"))
    assert dot.score(cat[None, None], dog[None, None]).item() == pytest.approx(1.05)
    score = scaled.score(cat[None, None], dog[None, None]).item()
    assert round(score, 3) == 0.606
    weight = torch.softmax(torch.tensor([score, 0.2, -0.8]), 0)[0]
    assert [round(value, 3) for value in (round(weight.item(), 3) * dog).tolist()] == [0.262, 0.052, 0.471]


def test_cosine_is_a_cosine_times_its_strength() -> None:
    cosine = make_attention("cosine", 3, 3)
    cat, dog = torch.tensor([[[0.6, 0.3, 0.8]]]), torch.tensor([[[0.5, 0.1, 0.9]]])
    expected = 5.0 * torch.nn.functional.cosine_similarity(cat, dog, dim=-1).item()
    assert cosine.score(cat, cosine.keys(dog)).item() == pytest.approx(expected, rel=1e-5)
    assert cosine.score(cat * 10, cosine.keys(dog)).item() == pytest.approx(expected, rel=1e-5)
