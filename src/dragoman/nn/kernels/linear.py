"""Linear layers that are faster on a CPU than torch's, in training and in use.

In training the bias is added to the finished product: torch's ``addmm`` first copies the bias into
every row of the result and lets the product read it again, which takes longer. In use, without
gradients, large products are oneDNN's, which torch has as well but takes for other types of numbers
only; its own, MKL's, take twice as long on some processors. The results are the same up to rounding
(bit for bit on some processors).
"""

from __future__ import annotations

from collections.abc import Iterator
from platform import machine
from typing import Any

import torch
from torch import Tensor, nn

from dragoman.nn.kernels._precision import autocasts
from dragoman.nn.kernels._switch import Twin, is_fast, sample, trains_fast

# x (..., in), weight (out, in), bias, and the name of what is applied to the result, with its arguments
_onednn_linear: Any = None
if torch.backends.mkldnn.is_available() and machine() in ("x86_64", "AMD64"):
    _onednn_linear = torch.ops.mkldnn._linear_pointwise.default
LARGE = 1_000_000  # multiply-adds of a product, from which on oneDNN's is faster in spite of its longer way in


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return x Wᵀ (+ b), without gradients faster than torch's. x (..., in), weight (out, in), bias (out,)."""
    if torch.is_grad_enabled() or not is_fast():
        return nn.functional.linear(x, weight, bias)
    if x.numel() * weight.shape[0] >= LARGE and _can_take_onednn(x, weight):
        return _onednn_linear(x, weight, bias, "none", [], "")
    if x.numel() == x.shape[-1]:
        # as a product of a matrix and a vector: torch may copy the matrix into another order to multiply it with a row
        product = torch.mv(weight, x.flatten())
        return (product if bias is None else product.add_(bias)).view(*x.shape[:-1], -1)
    return nn.functional.linear(x, weight, bias)


def _can_take_onednn(x: Tensor, weight: Tensor) -> bool:
    """Tell whether oneDNN has a fast product for these. For a part of a larger matrix it has a very slow one."""
    return (
        _onednn_linear is not None
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == "cpu"
        and weight.is_contiguous()
        and not autocasts(x)
    )


def linear_with_bias(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x Wᵀ + b. x (..., in), weight (out, in), bias (out,)."""
    if not trains_fast(x):
        return linear(x, weight, bias)
    return nn.functional.linear(x, weight).add_(bias)


def plain_linear_with_bias(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x Wᵀ + b."""
    return nn.functional.linear(x, weight, bias)


def _inputs() -> Iterator[tuple[Any, ...]]:
    for rows, width, out in ((7, 3, 5), (2, 40, 16)):
        yield sample(rows, 4, width), sample(out, width), sample(out)


TWINS = (Twin(linear_with_bias, plain_linear_with_bias, _inputs),)
