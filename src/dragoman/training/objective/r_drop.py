"""R-Drop (Liang et al. 2021): two passes with different dropout must agree.

    loss = ½ (CE_1 + CE_2)  +  weight / 4 · (KL(p_1 ‖ p_2) + KL(p_2 ‖ p_1))    (eq. 4, halved)

The paper's loss is the sum over the two passes; here it is their mean, so that a weight of 0 is the
ordinary loss and learning rates keep their meaning. ``weight`` is the paper's α, 5 for translation.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dragoman.config import ConfigError
from dragoman.nn.contracts import Decoder
from dragoman.nn.model import Model
from dragoman.recipe.training import TrainingConfig
from dragoman.training.objective.loss import loss_and_gold
from dragoman.types import Batch, Step


def agreement(model: Model, batch: Batch, first: Step, config: TrainingConfig, tokens: int) -> tuple[Tensor, Tensor]:
    """Return what a second pass adds: its cross-entropy, and how far the two passes are apart, weighted.

    Both are divided by ``tokens``. The second pass draws new random numbers, so its dropout is another.
    """
    second = model.teach(batch)
    loss, _ = loss_and_gold(second, batch, config.label_smoothing, scale=1 / tokens)
    return loss, config.r_drop / 4 * symmetric_kl(first, second, batch.mask) / tokens


def symmetric_kl(first: Step, second: Step, mask: Tensor) -> Tensor:
    """Return KL(p_1 ‖ p_2) + KL(p_2 ‖ p_1), summed over the real target tokens."""
    left, right = (
        torch.log_softmax(step.readout(step.features[mask]).float(), -1) for step in (first, second)
    )  # (tokens, V)
    return ((left.exp() - right.exp()) * (left - right)).sum()


def check_r_drop(decoder: Decoder, config: TrainingConfig) -> None:
    """Refuse ``training.r_drop`` for a decoder that samples its attention."""
    if config.r_drop and decoder.hard:
        raise ConfigError(
            "training.r_drop compares two passes, which decoder.selection = 'hard' lets look at different positions; "
            "set training.r_drop=0, or selection = 'soft'"
        )
