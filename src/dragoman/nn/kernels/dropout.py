"""Dropout whose mask is made of one random byte per element, alone and with ReLU or a sum.

``bernoulli_`` draws one random number per element and costs about a fifth of a training step on a
CPU. Here one 64-bit number serves eight elements; for large tensors, torch's stream only gives the
seed of a generator that is three times as fast. A byte is compared with a threshold that is
randomly rounded up or down, so that the rate is met on average.

The plain twins draw other random numbers, with the same probabilities.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dragoman.nn.kernels._switch import Twin, is_fast, sample
from dragoman.process.generators import current_generator

SMALL = 8192  # elements; below this, seeding a second generator takes longer than it saves


def apply_dropout(x: Tensor, rate: float) -> Tensor:
    """Zero each element with probability ``rate`` and divide the others by 1 - ``rate``."""
    return x * _mask(x, rate) if _uses_bytes(x, rate) else plain_dropout(x, rate)


def dropout_add(residual: Tensor, x: Tensor, rate: float) -> Tensor:
    """Return residual + dropout(x), in one pass."""
    if not _uses_bytes(x, rate):
        return plain_dropout_add(residual, x, rate)
    return torch.addcmul(residual, x, _mask(x, rate))


def relu_dropout(x: Tensor, rate: float) -> Tensor:
    """Return dropout(relu(x)).

    Both are one mask, so that the backward pass is one product instead of two.
    """
    if not _uses_bytes(x, rate):
        return plain_relu_dropout(x, rate)
    mask = _mask(x, rate)
    # relu's own backward, applied to the mask: what the mask has where x > 0, else 0
    torch.ops.aten.threshold_backward.grad_input(mask, x.detach(), 0.0, grad_input=mask)
    masked: Tensor = _Masked.apply(x, mask)
    return masked


class _Masked(torch.autograd.Function):
    """The product of ``x`` and a mask that is 0 wherever x is not positive.

    -inf times 0 is not a number, but relu(-inf) is 0. So -inf is replaced by the lowest finite
    number first, in the memory of the result; nothing else changes.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor) -> Tensor:
        ctx.save_for_backward(mask)
        return torch.clamp_min(x, torch.finfo(x.dtype).min).mul_(mask)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return gradient * mask, None


def plain_dropout(x: Tensor, rate: float) -> Tensor:
    """Zero each element with probability ``rate`` and divide the others by 1 - ``rate``."""
    if rate == 0.0 or current_generator() is None:
        return nn.functional.dropout(x, rate)
    # torch's dropout cannot draw from the generator of a thread
    keep = torch.rand(x.shape, device=x.device, generator=current_generator()) >= rate
    return x * keep / (1.0 - rate)


def plain_dropout_add(residual: Tensor, x: Tensor, rate: float) -> Tensor:
    """Return residual + dropout(x)."""
    return residual + plain_dropout(x, rate)


def plain_relu_dropout(x: Tensor, rate: float) -> Tensor:
    """Return dropout(relu(x))."""
    return plain_dropout(torch.relu(x), rate)


def _uses_bytes(x: Tensor, rate: float) -> bool:
    return rate > 0.0 and x.device.type == "cpu" and is_fast()


def _mask(x: Tensor, rate: float) -> Tensor:
    """Return 0 where ``x`` is dropped and 1 / (1 - ``rate``) elsewhere."""
    if rate > 255 / 256:  # too close to 1 for a byte
        keep = (torch.rand(x.shape, generator=current_generator()) >= rate).to(x.dtype)
        return keep.mul_(1.0 / (1.0 - rate))
    count = x.numel()
    word_count = 1 + (count + 7) // 8 if count < SMALL else 2  # taken from torch's stream
    words = torch.empty(word_count, dtype=torch.int64).random_(-(2**63), 2**63 - 1, generator=current_generator())
    threshold = int(rate * 256 + int(words[0]) / 2**64 + 0.5) - 128
    if count < SMALL:
        draws = words[1:].view(torch.int8)
    else:
        raw = np.random.SFC64(int(words[1]) + 2**63).random_raw((count + 7) // 8)
        draws = torch.from_numpy(raw.view(np.int8))
    # comparing into numbers instead of booleans is vectorised, and spares a conversion
    keep = torch.empty_like(x, memory_format=torch.contiguous_format)
    torch.ge(draws[:count].view(x.shape), threshold, out=keep)
    return keep.mul_(1.0 / (1.0 - rate))


def _inputs() -> Iterator[tuple[Any, ...]]:
    for rate in (0.0, 0.1, 0.5):
        yield sample(3, 5), rate


def _inputs_with_residual() -> Iterator[tuple[Any, ...]]:
    for rate in (0.0, 0.1, 0.5):
        yield sample(3, 5), sample(3, 5), rate


# The averages of 1,000 draws: for a rate of 0.5, their standard deviation is 0.03 times the element.
TWINS = (
    Twin(apply_dropout, plain_dropout, _inputs, draws=1000, tolerance=0.3),
    Twin(dropout_add, plain_dropout_add, _inputs_with_residual, draws=1000, tolerance=0.3),
    Twin(relu_dropout, plain_relu_dropout, _inputs, draws=1000, tolerance=0.3),
)
