"""Average cross-entropy per target token, label smoothing (Szegedy et al. 2016), projected in chunks.

The projection onto the vocabulary and the loss are one pass over chunks of rows that fit the cache: the logits are
never stored whole, padding is never projected, and the gradient is taken while the chunk is at hand.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from dragoman.types import Batch, Step

CHUNK = 256  # rows


class _ProjectedCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float
    ) -> Tensor:
        rows, vocabulary = len(features), len(weight)
        to_features = torch.empty_like(features)
        to_weight = torch.zeros_like(weight)
        to_bias = None if bias is None else torch.zeros_like(bias)
        total = torch.zeros((), dtype=torch.float64, device=features.device)
        buffer = features.new_empty(min(CHUNK, rows), vocabulary)
        for begin in range(0, rows, CHUNK):
            chunk, gold = features[begin : begin + CHUNK], targets[begin : begin + CHUNK, None]
            logits = buffer[: len(chunk)]
            if bias is None:
                torch.mm(chunk, weight.t(), out=logits)
            else:
                torch.addmm(bias, chunk, weight.t(), out=logits)
            normaliser = torch.logsumexp(logits, 1, keepdim=True)
            total += (normaliser - logits.gather(1, gold)).sum() * (1 - smoothing)
            if smoothing:
                total += smoothing * (normaliser.sum() - logits.sum() / vocabulary)
            # d loss / d logits = softmax - smoothed one-hot
            logits.sub_(normaliser).exp_()
            if smoothing:
                logits.sub_(smoothing / vocabulary)
            logits.scatter_add_(1, gold, logits.new_full((len(chunk), 1), smoothing - 1))
            torch.mm(logits, weight, out=to_features[begin : begin + CHUNK])
            to_weight.addmm_(logits.t(), chunk)
            if to_bias is not None:
                to_bias += logits.sum(0)
        ctx.save_for_backward(to_features, to_weight, to_bias)
        return total.to(features.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        to_features, to_weight, to_bias = ctx.saved_tensors
        return (
            to_features * gradient,
            to_weight.mul_(gradient),
            None if to_bias is None else to_bias * gradient,
            None,
            None,
        )


def summed_loss(step: Step, batch: Batch, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy summed over the batch's target tokens."""
    features = step.features[batch.mask]  # (tokens, D): padding is not projected
    targets = batch.targets[batch.mask]
    readout = step.readout
    if isinstance(readout, nn.Linear) and torch.is_grad_enabled() and not torch.is_autocast_enabled():
        return _ProjectedCrossEntropy.apply(features, readout.weight, readout.bias, targets, smoothing)
    logits = readout(features).float()
    return nn.functional.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
