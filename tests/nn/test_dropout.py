"""Masks of bytes: the rate is met, whatever it is, draws are independent and can be repeated."""

from __future__ import annotations

import pytest
import torch

from dragoman.nn import kernels
from dragoman.nn.blocks.layers import Dropout
from dragoman.nn.kernels.dropout import SMALL

RATES = [0.001, 0.1, 0.25, 0.3, 0.5, 0.9, 0.999]


@pytest.mark.parametrize("rows", [501, SMALL])
@pytest.mark.parametrize("rate", RATES)
def test_the_rate_is_met_and_made_up_for(rate: float, rows: int) -> None:
    torch.manual_seed(1)
    dropout = Dropout(rate)
    made = torch.stack([dropout(torch.ones(rows, 7)) for _ in range(100)])
    assert made.unique().tolist() == pytest.approx([0.0, 1 / (1 - rate)])
    expected, count = (1 - rate) * made.numel(), made.numel()
    # five standard deviations of independent draws, and of the threshold, which is rounded once a call
    spread = (count * rate * (1 - rate)) ** 0.5 + made[0].numel() * 100**0.5 / 256 / 2
    assert abs(float((made > 0).sum()) - expected) < 5 * spread


def test_elements_and_calls_are_independent() -> None:
    torch.manual_seed(2)
    dropout = Dropout(0.5)
    for count in (SMALL - 1, 200_000):
        first, second = (dropout(torch.ones(count)) - 1 for _ in range(2))  # -1 or 1
        for other in (second, first.roll(1), first.roll(8)):
            assert abs(float((first * other).mean())) < 5 / count**0.5


def test_a_seed_repeats_it() -> None:
    dropout, x = Dropout(0.3), torch.randn(33, 5)
    torch.manual_seed(3)
    once, then = dropout(x), dropout(x)
    torch.manual_seed(3)
    assert torch.equal(dropout(x), once)
    assert torch.equal(dropout(x), then)
    assert not torch.equal(once, then)


def test_added_and_rectified_are_what_they_say() -> None:
    dropout, beside = Dropout(0.3), torch.randn(9, 31, requires_grad=True)
    x = torch.randn(9, 31, requires_grad=True)
    for short, long in (
        (lambda: dropout.add(beside, x), lambda: beside + dropout(x)),
        (lambda: dropout.relu(x), lambda: dropout(torch.relu(x))),
    ):
        results = []
        for make in (short, long):
            torch.manual_seed(4)
            made = make()
            results.append((made, *torch.autograd.grad((made * beside).sum(), (x, beside))))
        for one, other in zip(*results, strict=True):
            assert torch.allclose(one, other)


@pytest.mark.parametrize("kind", [torch.float64, torch.float32, torch.bfloat16])
def test_masks_are_of_the_type_they_are_for(kind: torch.dtype) -> None:
    made = Dropout(0.3)(torch.ones(SMALL, dtype=kind))
    assert made.dtype == kind
    assert made.unique().tolist() == [0.0, torch.tensor(1 / 0.7, dtype=kind).item()]


def test_in_use_nothing_is_dropped() -> None:
    dropout, x = Dropout(0.9).eval(), torch.randn(4, 4)
    assert torch.equal(dropout(x), x)
    assert torch.equal(dropout.add(x, x), x + x)
    assert torch.equal(dropout.relu(x), x.relu())


@pytest.mark.parametrize("mode", ["fast", "plain"])
@pytest.mark.parametrize("count", [64, SMALL])
def test_rectified_minus_infinity_is_zero(mode: str, count: int) -> None:
    x = torch.full((count,), -torch.inf, requires_grad=True)
    with kernels.fast() if mode == "fast" else kernels.plain():
        made = Dropout(0.5).relu(x)
        (gradient,) = torch.autograd.grad(made.sum(), x)
    assert made.abs().max() == 0 and gradient.abs().max() == 0
