"""Attention's own backward: the gradients are those of the formula, with rows shorter and longer than a register."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from dragoman.nn.kernels import multi_head_attention, multi_head_self_attention
from dragoman.nn.kernels.attention import FEWEST_COLUMNS, FastAttention

HEADS, WIDTH = 2, 6
LENGTHS = [(1, 1), (3, 5), (2, FEWEST_COLUMNS), (4, FEWEST_COLUMNS + 3)]


def drawn(*shape: int) -> Tensor:
    chance = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, dtype=torch.float64, generator=chance).requires_grad_()


def hidden_of(kind: str, asked: int, length: int) -> Tensor | None:
    if kind == "nothing":
        return None
    if kind == "padding":  # of the second row, but for one position
        return torch.stack([torch.zeros(length), torch.arange(length) > 0]).bool()[:, None]
    return torch.ones(asked, length).triu(1).bool()[None]


@pytest.mark.parametrize("kind", ["nothing", "padding", "future"])
@pytest.mark.parametrize(("asked", "length"), LENGTHS)
def test_it_is_attention(asked: int, length: int, kind: str) -> None:
    parts = drawn(2, asked, WIDTH), drawn(2, length, WIDTH), drawn(2, length, WIDTH).detach().requires_grad_()
    hidden = hidden_of(kind, asked, length)
    with torch.no_grad():
        contexts, weights = multi_head_attention(*parts, hidden, HEADS)
    made: Any = FastAttention.apply(HEADS, hidden, *parts)
    assert torch.allclose(made[0], contexts)
    assert torch.allclose(made[1], weights)
    assert torch.autograd.gradcheck(lambda *given: FastAttention.apply(HEADS, hidden, *given), parts)


@pytest.mark.parametrize("length", [1, 7, FEWEST_COLUMNS + 1])
def test_of_one_projection(length: int) -> None:
    projected, hidden = drawn(2, length, 3 * WIDTH), hidden_of("future", length, length)
    with torch.no_grad():
        contexts, weights = multi_head_self_attention(projected, hidden, HEADS)
    made: Any = FastAttention.apply(HEADS, hidden, projected)
    assert torch.allclose(made[0], contexts)
    assert torch.allclose(made[1], weights)
    assert torch.autograd.gradcheck(lambda given: FastAttention.apply(HEADS, hidden, given), (projected,))


def test_training_takes_it_and_decoding_does_not() -> None:
    parts = drawn(2, 3, WIDTH), drawn(2, 4, WIDTH), drawn(2, 5, WIDTH)[:, :4]
    assert "FastAttention" in type(multi_head_attention(*parts, None, HEADS)[0].grad_fn).__name__
    with torch.inference_mode():
        assert multi_head_attention(*parts, None, HEADS)[0].grad_fn is None


def test_nothing_to_look_at_is_no_trouble() -> None:
    query, empty = drawn(2, 3, WIDTH), drawn(2, 0, WIDTH)
    assert torch.equal(multi_head_attention(query, empty, empty, None, HEADS)[0], torch.zeros(2, 3, WIDTH))


def test_gradients_of_gradients_are_refused() -> None:
    parts = drawn(2, 3, WIDTH), drawn(2, 4, WIDTH), drawn(2, 5, WIDTH)[:, :4]
    contexts, _ = multi_head_attention(*parts, None, HEADS)
    (gradient,) = torch.autograd.grad(contexts.square().sum(), parts[0], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
