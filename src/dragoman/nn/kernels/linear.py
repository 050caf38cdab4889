"""A linear layer whose training on a CPU adds the bias to the finished product.

torch's ``addmm`` first copies the bias into every row of the result and lets the product read it
again, which takes longer. The results are the same up to rounding (bit for bit on some processors).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from dragoman.nn.kernels._switch import Twin, sample, trains_fast


def linear_with_bias(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x Wᵀ + b. x (..., in), weight (out, in), bias (out,)."""
    if not trains_fast(x):
        return plain_linear_with_bias(x, weight, bias)
    return nn.functional.linear(x, weight).add_(bias)


def plain_linear_with_bias(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return x Wᵀ + b."""
    return nn.functional.linear(x, weight, bias)


def _inputs() -> Iterator[tuple[Any, ...]]:
    for rows, width, out in ((7, 3, 5), (2, 40, 16)):
        yield sample(rows, 4, width), sample(out, width), sample(out)


TWINS = (Twin(linear_with_bias, plain_linear_with_bias, _inputs),)
