"""The linear layers of training and of use are torch's, gradients and all."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from dragoman.nn import kernels
from dragoman.nn.blocks.layers import InferenceLinear, Linear
from dragoman.nn.kernels.linear import LARGE


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
def test_under_autocast_it_is_torchs_own() -> None:
    ours, theirs = pair(700, 9)
    x = torch.randn(40, 700)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(ours(x.requires_grad_()), theirs(x))


def test_without_bias() -> None:
    layer = Linear(4, 3, bias=False)
    x = torch.randn(2, 4, requires_grad=True)
    assert torch.allclose(layer(x), x @ layer.weight.t())


@pytest.mark.parametrize("shape", [(1, 128), (1, 1, 128), (5, 128), (64, 128), (3, 50, 128), (0, 128)])
@pytest.mark.parametrize("outputs", [7, 10_000])
@pytest.mark.parametrize("has_bias", [True, False])
def test_in_use_small_and_large_products_are_torchs(shape: tuple[int, ...], outputs: int, has_bias: bool) -> None:
    torch.manual_seed(outputs)
    layer, x = InferenceLinear(128, outputs, bias=has_bias), torch.randn(shape)
    with torch.inference_mode():
        made = layer(x)
        expected = nn.functional.linear(x, layer.weight, layer.bias)
    assert made.shape == expected.shape
    torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("weight", [torch.randn(2048, 300)[:, 44:], torch.randn(256, 2048).t()])
def test_a_part_of_a_matrix_and_a_transposed_one_are_multiplied_too(weight: Tensor) -> None:
    x = torch.randn(256, 10).t()
    assert x.numel() * len(weight) > LARGE
    with torch.inference_mode():
        expected = nn.functional.linear(x, weight)
        torch.testing.assert_close(kernels.linear(x, weight), expected, rtol=1e-4, atol=1e-4)


def test_with_gradients_and_with_the_plain_kernels_it_is_torchs_bit_for_bit() -> None:
    layer, x = InferenceLinear(128, 300), torch.randn(64, 128)
    assert torch.equal(layer(x), nn.functional.linear(x, layer.weight, layer.bias))
    with kernels.plain(), torch.inference_mode():
        assert torch.equal(layer(x), nn.functional.linear(x, layer.weight, layer.bias))


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
@pytest.mark.usefixtures("needs_bfloat16")
def test_other_types_of_numbers_are_multiplied_by_torch(kind: torch.dtype) -> None:
    layer, x = InferenceLinear(128, 300).to(kind), torch.randn(64, 128, dtype=kind)
    with torch.inference_mode():
        assert torch.equal(layer(x), nn.functional.linear(x, layer.weight, layer.bias))
