"""Cross-entropy with label smoothing (Szegedy et al. 2016) and the projection onto the vocabulary.

Both are one pass over chunks of rows that fit the cache: the logits are never stored whole, and the
gradient is computed while a chunk is at hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from dragoman.nn.kernels._precision import autocasts
from dragoman.nn.kernels._switch import Twin, is_fast, sample

LOGITS = 3_200_000  # numbers held at a time, about 13 MB: twice as many do not fit into some caches
SMALLEST = -80.0  # a log p above this is taken from p itself; below it, p is not a normal float32


def projected_cross_entropy(
    features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, scale: float
) -> tuple[Tensor, Tensor]:
    """Return ``scale`` times the summed loss of logits x Wᵀ + b, and the log-probabilities.

    The log-probabilities (tokens,) of the targets have no gradient.
    features (tokens, D), weight (V, D), bias (V,) or None, targets (tokens,).
    """
    if not (is_fast() and torch.is_grad_enabled() and not autocasts(features)):
        return plain_projected_cross_entropy(features, weight, bias, targets, smoothing, scale)
    loss, log_probs = _ProjectedCrossEntropy.apply(features, weight, bias, targets, smoothing, scale)
    return loss, log_probs[:, 0]


def plain_projected_cross_entropy(
    features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, scale: float
) -> tuple[Tensor, Tensor]:
    """Return the loss and log-probabilities by way of all logits at once."""
    return cross_entropy_of_logits(nn.functional.linear(features, weight, bias), targets, smoothing, scale)


def cross_entropy_of_logits(logits: Tensor, targets: Tensor, smoothing: float, scale: float) -> tuple[Tensor, Tensor]:
    """Return ``scale`` times the summed loss of logits (tokens, V), and the log-probabilities.

    The log-probabilities (tokens,) of the targets have no gradient.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    loss = nn.functional.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    with torch.no_grad():
        log_probs = -nn.functional.cross_entropy(logits, targets, reduction="none")
    return scale * loss, log_probs


class _ProjectedCrossEntropy(torch.autograd.Function):
    """The kernel. The logits of a chunk become probabilities p in place; nothing else is as large.

    d loss / d logits = p - (1 - smoothing) onehot - smoothing / V. The one-hot and constant terms
    are added to the small results of the two products, and the sum of all logits, which smoothing
    needs, is a product of two sums. So the large matrix is passed over only to make it and to use
    it.
    """

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, scale: float
    ) -> tuple[Tensor, Tensor]:
        rows, vocabulary = len(features), len(weight)
        gold_share, uniform_share = scale * (1.0 - smoothing), scale * smoothing / vocabulary
        to_features = torch.empty_like(features)
        to_weight = torch.empty_like(weight) if rows else torch.zeros_like(weight)
        to_bias = None if bias is None else torch.zeros_like(bias)
        gold_logits = features.new_empty(rows, 1)
        log_probs = features.new_empty(rows, 1)  # of the targets; probabilities until all chunks are done
        chunks = max(1, -(-rows * vocabulary // LOGITS))
        size = max(1, -(-rows // chunks))
        buffer = features.new_empty(size, vocabulary)
        for begin in range(0, rows, size):
            chunk, gold = features[begin : begin + size], targets[begin : begin + size, None]
            logits = buffer[: len(chunk)]
            _project(chunk, weight, bias, logits)
            torch.gather(logits, 1, gold, out=gold_logits[begin : begin + size])
            p = torch.softmax(logits, 1, out=logits)
            torch.gather(p, 1, gold, out=log_probs[begin : begin + size])
            torch.mm(p, weight, out=to_features[begin : begin + size])
            # beta 0 in the first chunk: the uninitialised memory is not read
            to_weight.addmm_(p.t(), chunk, alpha=scale, beta=1.0 if begin else 0.0)
            if to_bias is not None:
                to_bias.add_(p.sum(0), alpha=scale)
        log_probs.log_()
        _recompute_smallest(log_probs, gold_logits, features, weight, bias)
        total = -gold_share * log_probs.sum(dtype=torch.float64)
        to_features.mul_(scale).sub_(weight[targets], alpha=gold_share)
        to_weight.index_add_(0, targets, features, alpha=-gold_share)
        if to_bias is not None:
            to_bias.index_add_(0, targets, features.new_full((rows,), -gold_share))
        if smoothing:
            weight_sum, feature_sum = weight.sum(0), features.sum(0)  # summing in float64 would copy the whole weight
            normalisers = (gold_logits - log_probs).sum(dtype=torch.float64)
            biases = 0.0 if bias is None else rows * bias.sum(dtype=torch.float64)
            logit_sum = feature_sum.double() @ weight_sum.double() + biases
            total += scale * smoothing * normalisers - uniform_share * logit_sum
            to_features.sub_(weight_sum, alpha=uniform_share)
            to_weight.sub_(feature_sum, alpha=uniform_share)
            if to_bias is not None:
                to_bias.sub_(rows * uniform_share)
        ctx.save_for_backward(to_features, to_weight, to_bias)
        ctx.mark_non_differentiable(log_probs)
        return total.to(features.dtype), log_probs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Any, ...]:
        to_features, to_weight, to_bias = ctx.saved_tensors
        if gradient.device.type == "cpu" and float(gradient) == 1.0:  # the loss is the whole objective, as it mostly is
            return to_features, to_weight, to_bias, None, None, None
        return (
            to_features * gradient,
            to_weight.mul_(gradient),
            None if to_bias is None else to_bias * gradient,
            None,
            None,
            None,
        )


def _project(features: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
    if bias is None:
        torch.mm(features, weight.t(), out=out)
    else:
        torch.addmm(bias, features, weight.t(), out=out)


def _recompute_smallest(
    log_probs: Tensor, gold_logits: Tensor, features: Tensor, weight: Tensor, bias: Tensor | None
) -> None:
    """Compute the log-probabilities of very unlikely targets again, without log(p)."""
    few = (log_probs < SMALLEST).nonzero()[:, 0]
    if len(few):
        logits = nn.functional.linear(features[few], weight, bias)
        log_probs[few] = gold_logits[few] - logits.logsumexp(1, keepdim=True)


def _inputs() -> Iterator[tuple[Any, ...]]:
    targets = torch.tensor([3, 0, 6, 6, 1])
    for smoothing, scale in ((0.0, 1.0), (0.1, 0.25)):
        yield sample(5, 4), sample(7, 4), sample(7), targets, smoothing, scale
        yield sample(5, 4), sample(7, 4), None, targets, smoothing, scale


TWINS = (Twin(projected_cross_entropy, plain_projected_cross_entropy, _inputs),)
