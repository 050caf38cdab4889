"""The optimiser's step: clipping inside of it is clipping before it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from dragoman.training.optim import OptimConfig, clipped_step, gradient_norm, make_optimizer


@pytest.mark.parametrize("kind", ["adam", "adamw"])
@pytest.mark.parametrize("limit", [0.0, 0.5, 1e6])
def test_a_clipped_step_is_torchs_clipping_and_a_step(kind: str, limit: float) -> None:
    torch.manual_seed(1)
    config = OptimConfig(kind=kind, clip=limit, weight_decay=0.01)
    mine = nn.Sequential(nn.Linear(5, 7), nn.Linear(7, 3))
    theirs = copy.deepcopy(mine)
    steps = [make_optimizer(config, list(model.parameters())) for model in (mine, theirs)]
    for _ in range(5):
        x = torch.randn(4, 5)
        for model in (mine, theirs):
            model.zero_grad()
            model(x).square().sum().backward()
        norm = gradient_norm(list(mine.parameters()))
        expected = nn.utils.clip_grad_norm_(theirs.parameters(), limit or float("inf"))
        assert norm == pytest.approx(float(expected), rel=1e-5)
        clipped_step(steps[0], norm, limit)
        steps[1].step()
        for a, b in zip(mine.parameters(), theirs.parameters(), strict=True):
            torch.testing.assert_close(a, b)


def test_the_norm_counts_only_what_has_a_gradient() -> None:
    with_gradient, without = nn.Parameter(torch.zeros(2, 2)), nn.Parameter(torch.zeros(3))
    with_gradient.grad = torch.tensor([[3.0, 0.0], [0.0, 4.0]]).t()
    assert gradient_norm([with_gradient, without]) == 5.0
    assert gradient_norm([without]) == 0.0
    with_gradient.grad = torch.tensor([[float("nan"), 0.0], [0.0, 4.0]])
    assert gradient_norm([with_gradient]) != gradient_norm([with_gradient])
