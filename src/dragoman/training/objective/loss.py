"""The loss: cross-entropy with label smoothing (Szegedy et al. 2016), and a penalty on attention.

Padding is never projected onto the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from dragoman.config import ConfigError
from dragoman.nn import kernels
from dragoman.nn.contracts import Decoder
from dragoman.recipe.training import TrainingConfig
from dragoman.types import Batch, Step


def summed_loss(step: Step, batch: Batch, smoothing: float = 0.0) -> Tensor:
    """Return the cross-entropy summed over the target tokens, and the source's where they count."""
    return loss_and_gold(step, batch, smoothing)[0]


def loss_and_gold(step: Step, batch: Batch, smoothing: float = 0.0, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """Return ``scale`` times the summed cross-entropy, and each target token's log-probability.

    No gradient flows through the log-probabilities. Where the source's tokens count too, each but
    the first is predicted from those before it.
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
