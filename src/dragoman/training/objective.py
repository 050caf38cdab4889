"""Average cross-entropy per target token, label smoothing (Szegedy et al. 2016), projected in chunks.

The projection onto the vocabulary and the loss are one pass over chunks of rows that fit the cache: the logits are
never stored whole, padding is never projected, and the gradient is taken while the chunk is at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from dragoman.config import ConfigError
from dragoman.contracts import Decoder
from dragoman.nn.precision import autocasts
from dragoman.training.options import TrainingConfig
from dragoman.types import Batch, Step

LOGITS = 3_200_000  # numbers held at a time, about 13 MB: twice as many fall out of some caches
SMALLEST = -80.0  # log p above this is taken from p itself: below, float32 has no full number for it


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Of each chunk the logits become probabilities p in place, and nothing else as large is ever made.

    d loss / d logits = p - (1 - smoothing) onehot - smoothing / V. The one-hot and constant terms are added to the
    small results of the two products, and the sum of all logits, which smoothing wants, is a product of two sums: the
    large matrix is passed over only to make it and to use it.
    """

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, smoothing: float, scale: float
    ) -> tuple[Tensor, Tensor]:
        rows, vocabulary = len(features), len(weight)
        gold_share, spread = scale * (1.0 - smoothing), scale * smoothing / vocabulary
        to_features = torch.empty_like(features)
        to_weight = torch.empty_like(weight) if rows else torch.zeros_like(weight)
        to_bias = None if bias is None else torch.zeros_like(bias)
        gold_logits, picked = features.new_empty(rows, 1), features.new_empty(rows, 1)  # picked: first p, then log p
        pieces = max(1, -(-rows * vocabulary // LOGITS))
        size = max(1, -(-rows // pieces))
        buffer = features.new_empty(size, vocabulary)
        for begin in range(0, rows, size):
            chunk, gold = features[begin : begin + size], targets[begin : begin + size, None]
            logits = buffer[: len(chunk)]
            _project(chunk, weight, bias, logits)
            torch.gather(logits, 1, gold, out=gold_logits[begin : begin + size])
            p = torch.softmax(logits, 1, out=logits)
            torch.gather(p, 1, gold, out=picked[begin : begin + size])
            torch.mm(p, weight, out=to_features[begin : begin + size])
            to_weight.addmm_(p.t(), chunk, alpha=scale, beta=1.0 if begin else 0.0)  # 0: what stood there is not read
            if to_bias is not None:
                to_bias.add_(p.sum(0), alpha=scale)
        picked.log_()
        _mend(picked, gold_logits, features, weight, bias)
        total = -gold_share * picked.sum(dtype=torch.float64)
        to_features.mul_(scale).sub_(weight[targets], alpha=gold_share)
        to_weight.index_add_(0, targets, features, alpha=-gold_share)
        if to_bias is not None:
            to_bias.index_add_(0, targets, features.new_full((rows,), -gold_share))
        if smoothing:
            all_weights, all_features = weight.sum(0), features.sum(0)  # double would copy the whole weight first
            normalisers = (gold_logits - picked).sum(dtype=torch.float64)
            biases = 0.0 if bias is None else rows * bias.sum(dtype=torch.float64)
            total += scale * smoothing * normalisers - spread * (all_features.double() @ all_weights.double() + biases)
            to_features.sub_(all_weights, alpha=spread)
            to_weight.sub_(all_features, alpha=spread)
            if to_bias is not None:
                to_bias.sub_(rows * spread)
        ctx.save_for_backward(to_features, to_weight, to_bias)
        ctx.mark_non_differentiable(picked)
        return total.to(features.dtype), picked

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


def _mend(picked: Tensor, gold_logits: Tensor, features: Tensor, weight: Tensor, bias: Tensor | None) -> None:
    """Log-probabilities of tokens so unlikely that p is no longer a full float: once more, without taking p."""
    few = (picked < SMALLEST).nonzero()[:, 0]
    if len(few):
        logits = nn.functional.linear(features[few], weight, bias)
        picked[few] = gold_logits[few] - logits.logsumexp(1, keepdim=True)


def summed_loss(step: Step, batch: Batch, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy summed over the batch's target tokens, and over the source's where the step counts them."""
    return loss_and_gold(step, batch, smoothing)[0]


def loss_and_gold(step: Step, batch: Batch, smoothing: float = 0.0, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """``scale`` times the summed cross-entropy, and each target token's log-probability (tokens,), which is constant.

    Of a source that counts, each position but the first is predicted, from those before it.
    """
    # padding is not projected
    loss, gold = _projected(step.readout, step.features[batch.mask], batch.targets[batch.mask], smoothing, scale)
    if step.reading is not None:
        (source,) = batch.sources.values()
        real = source.mask[:, 1:]
        features, tokens = step.reading.features[:, :-1][real], source.data[:, 1:][real]
        loss = loss + step.reading.weight * _projected(step.readout, features, tokens, smoothing, scale)[0]
    return loss, gold


def doubly_stochastic(attention: Tensor, mask: Tensor, regions: Tensor) -> Tensor:
    """Σ_i (1 - Σ_t α_ti)², summed over the rows (Xu et al. 2015, eq. 14): no place is to be overlooked.

    attention (B, T, A, S), of which the mean over A counts; mask (B, T) of the target, regions (B, S) of the memory.
    """
    looked = (attention.mean(2) * mask[..., None]).sum(1)  # (B, S)
    return (1 - looked).square().masked_fill(~regions, 0.0).sum()


def check_attention(decoder: Decoder, config: TrainingConfig) -> None:
    """Is there attention that ``training.doubly_stochastic`` could form?"""
    if not config.doubly_stochastic:
        return
    if not decoder.maps:
        raise ConfigError("training.doubly_stochastic forms attention, but this decoder has none; set it to 0")
    if getattr(decoder, "hard", False):
        raise ConfigError(
            "training.doubly_stochastic sends a gradient through soft attention, which decoder.selection = 'hard' does "
            "not have; set training.doubly_stochastic=0, or selection = 'soft'"
        )


def _projected(
    readout: Callable[[Tensor], Tensor], features: Tensor, targets: Tensor, smoothing: float, scale: float
) -> tuple[Tensor, Tensor]:
    """features (tokens, D), targets (tokens,) → the loss times ``scale``, and the log-probability of each token."""
    if isinstance(readout, nn.Linear) and torch.is_grad_enabled() and not autocasts(features):
        loss, gold = _ProjectedCrossEntropy.apply(features, readout.weight, readout.bias, targets, smoothing, scale)
        return loss, gold[:, 0]
    logits = readout(features).float()
    loss = nn.functional.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    with torch.no_grad():
        gold = -nn.functional.cross_entropy(logits, targets, reduction="none")
    return scale * loss, gold
