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


def summed_loss(step: Step, batch: Batch, smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy summed over the target tokens, and the source's where they count."""
    return loss_and_gold(step, batch, smoothing)[0]


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

    P(y) = g P_generate(y) + (1 - g) P_copy(y) is summed in log space, and only for the targets. Labels
    are smoothed for what is generated: a slot that no position of the source writes has no
    log-probability to be smoothed.
    """
    targets = batch.targets[batch.mask]  # (tokens,)
    generated = step.readout(step.features[batch.mask]).float().log_softmax(-1)  # (tokens, V without slots)
    vocabulary = generated.shape[-1]
    is_slot = targets >= vocabulary
    gold = generated.gather(1, targets.clamp_max(vocabulary - 1)[:, None])[:, 0]
    matches = copies.targets[:, None] == batch.targets[:, :, None]  # (B, T, S)
    copied = (copies.weights.float() * matches).sum(-1)[batch.mask].clamp_min(SMALLEST).log()
    gate = copies.gate[batch.mask].float()
    keep, copy = nn.functional.logsigmoid(gate), nn.functional.logsigmoid(-gate)
    # both terms are finite, so that the gradient is too; exp(-inf) of one would be a gradient of nan
    either = torch.logaddexp(gold + keep, copied + copy)
    log_probs = torch.where(is_slot, copied + copy, either)
    loss = -(1 - smoothing) * log_probs.sum()
    if smoothing:
        loss = loss - smoothing * (generated.mean(-1) + keep).sum()
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
