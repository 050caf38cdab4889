"""The linear layer that training takes is torch's, gradients and all."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dragoman.nn.blocks.layers import Linear


def pair(inputs: int, outputs: int) -> tuple[Linear, nn.Linear]:
    torch.manual_seed(inputs)
    ours, theirs = Linear(inputs, outputs), nn.Linear(inputs, outputs)
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


@pytest.mark.parametrize(("inputs", "outputs"), [(3, 5), (128, 384), (384, 64), (1030, 16)])
def test_it_is_torchs_layer_in_training(inputs: int, outputs: int) -> None:
    results = []
    drawn, given = torch.randn(7, 5, inputs), torch.randn(7, 5, outputs)
    for layer in pair(inputs, outputs):
        x = drawn.clone().requires_grad_()
        made = layer(x)
        made.backward(given)
        assert x.grad is not None
        assert layer.weight.grad is not None
        results.append((made, x.grad, layer.weight.grad, layer.bias.grad))
    for ours, theirs in zip(*results, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("needs_bfloat16")
def test_in_use_and_under_autocast_it_is_torchs_own() -> None:
    ours, theirs = pair(700, 9)
    x = torch.randn(40, 700)
    with torch.inference_mode():
        assert torch.equal(ours(x), theirs(x))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(ours(x.requires_grad_()), theirs(x))


def test_without_bias() -> None:
    layer = Linear(4, 3, bias=False)
    x = torch.randn(2, 4, requires_grad=True)
    assert torch.allclose(layer(x), x @ layer.weight.t())
