"""The loss: cross-entropy with label smoothing (Szegedy et al. 2016), and a penalty on attention.

Padding is never projected onto the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from dragoman.config import ConfigError
from dragoman.nn import kernels
from dragoman.nn.contracts import Decoder
from dragoman.recipe.training import TrainingConfig
from dragoman.types import Batch, Copies, Step

SMALLEST = 1e-30  # keeps the logarithm of what no position writes finite
GENERATING = 0.5  # share of the loss that a model which copies has for what it generates, as if it did not copy


def summed_loss(step: Step, batch: Batch, smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy summed over the target tokens, and the source's where they count.

    Where tokens are copied it is that of the mixture alone, without smoothing.
    """
    loss, gold = loss_and_gold(step, batch, smoothing)
    return loss if step.copies is None else -gold.sum()


def loss_and_gold(step: Step, batch: Batch, smoothing: float = 0.0, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return ``scale`` times the summed cross-entropy, and each target token's log-probability.

    No gradient flows through the log-probabilities. Where the source's tokens count too, each but
    the first is predicted from those before it.
    """
    if step.copies is not None:
        return _copying_loss(step, step.copies, batch, smoothing, scale)
    # padding is not projected
    loss, gold = _projected(step.readout, step.features[batch.mask], batch.targets[batch.mask], smoothing, scale)
    if step.reading is not None:
        (source,) = batch.sources.values()
        real = source.mask[:, 1:]
        features, tokens = step.reading.features[:, :-1][real], source.data[:, 1:][real]
        loss = loss + step.reading.weight * _projected(step.readout, features, tokens, smoothing, scale)[0]
    return loss, gold


def _copying_loss(step: Step, copies: Copies, batch: Batch, smoothing: float, scale: float) -> tuple[Tensor, Tensor]:
    """Return the loss and the log-probabilities of targets that are generated or copied.

    The mixture P(y) = g P_generate(y) + P_copy(y) is summed in log space, and only for the targets.
    Labels are smoothed for what is generated: a slot that no position of the source writes has no
    log-probability to be smoothed.

    What can be copied would teach the generator nothing: the pointer soon explains it. The network
    then learns from the few other tokens alone, which with few rows is not enough. So the loss is in
    part that of the generator by itself, for all tokens that it has.
    """
    targets = batch.targets[batch.mask]  # (tokens,)
    generated = step.readout(step.features[batch.mask]).float().log_softmax(-1)  # (tokens, V without slots)
    vocabulary = generated.shape[-1]
    is_slot = targets >= vocabulary
    gold = generated.gather(1, targets.clamp_max(vocabulary - 1)[:, None])[:, 0]
    matches = copies.targets[:, None] == batch.targets[:, :, None]  # (B, T, S)
    copied = (copies.weights * matches).sum(-1)[batch.mask].clamp_min(SMALLEST).log()
    keep = copies.log_generate[batch.mask]
    # both terms are finite, so that the gradient is too; exp(-inf) of one would be a gradient of nan
    log_probs = torch.where(is_slot, copied, torch.logaddexp(gold + keep, copied))
    smooth = generated.mean(-1)
    mixed = (1 - smoothing) * log_probs + smoothing * (smooth + keep)
    alone = ((1 - smoothing) * gold + smoothing * smooth).masked_fill(is_slot, 0.0)
    loss = -((1 - GENERATING) * mixed.sum() + GENERATING * alone.sum())
    return scale * loss, log_probs.detach()


def doubly_stochastic(attention: Tensor, mask: Tensor, regions: Tensor) -> Tensor:
    """Return Σ_i (1 - Σ_t α_ti)² (Xu et al. 2015, eq. 14): a penalty for overlooking a position.

    attention (B, T, A, S), of which the mean over A counts; mask (B, T) of the target, regions (B,
    S) of the memory.
    """
    received = (attention.mean(2) * mask[..., None]).sum(1)  # (B, S)
    return (1 - received).square().masked_fill(~regions, 0.0).sum()


def check_attention(decoder: Decoder, config: TrainingConfig) -> None:
    """Refuse ``training.doubly_stochastic`` for a decoder without soft attention."""
    if not config.doubly_stochastic:
        return
    if not decoder.maps:
        raise ConfigError("training.doubly_stochastic forms attention, but this decoder has none; set it to 0")
    if decoder.hard:
        raise ConfigError(
            "training.doubly_stochastic sends a gradient through soft attention, which decoder.selection = 'hard' does "
            "not have; set training.doubly_stochastic=0, or selection = 'soft'"
        )


def _projected(
    readout: Callable[[Tensor], Tensor], features: Tensor, targets: Tensor, smoothing: float, scale: float
) -> tuple[Tensor, Tensor]:
    """Project features (tokens, D); return ``scale`` times the loss, and the log-probabilities."""
    if isinstance(readout, nn.Linear):
        return kernels.projected_cross_entropy(features, readout.weight, readout.bias, targets, smoothing, scale)
    return kernels.cross_entropy_of_logits(readout(features), targets, smoothing, scale)
