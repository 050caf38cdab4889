"""The loss of training on one batch, or on one worker's share of it, and its gradient."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from dragoman.nn.model import Model
from dragoman.process.devices import flush_denormals
from dragoman.recipe.training import TrainingConfig
from dragoman.training.objective.ctc import summed_ctc
from dragoman.training.objective.distill import Teacher, distillation
from dragoman.training.objective.loss import doubly_stochastic, loss_and_gold
from dragoman.training.objective.r_drop import agreement
from dragoman.training.objective.reinforce import surrogate
from dragoman.types import Batch, State


@dataclass(frozen=True, slots=True)
class ShareResult:
    """What the trainer needs to know of a share besides its gradient."""

    loss: float  # cross-entropy of the target tokens, divided by the tokens of the whole update
    smoothed_loss: float  # the same with smoothed labels, and the source's tokens where they count: what is minimised
    reward: float | None  # of hard attention's choices, summed
    state: State | None  # after the batch, where it is carried on

    def to_numbers(self) -> list[float]:
        """Return all but the state as numbers, for another process; NaN means no reward."""
        return [self.loss, self.smoothed_loss, float("nan") if self.reward is None else self.reward]

    @classmethod
    def from_numbers(cls, loss: float, smoothed_loss: float, reward: float) -> ShareResult:
        """Return the result that ``to_numbers`` was called on, without its state."""
        return cls(loss, smoothed_loss, None if math.isnan(reward) else reward, None)


@flush_denormals()  # set for each thread
def add_gradient(
    model: Model,
    batch: Batch,
    config: TrainingConfig,
    *,
    tokens: int,
    baseline: float | None = None,
    carries: bool = False,
    teacher: Teacher | None = None,
) -> ShareResult:
    """Add the gradient of the loss to the model's parameters.

    ``tokens`` are the target tokens of the whole update, by which the loss is divided; ``baseline``
    is the expected reward of a token; ``carries``: the decoder's state goes on to the next batch;
    ``teacher``: whose probabilities are learnt too.
    """
    with torch.autocast(batch.inputs.device.type, torch.bfloat16, enabled=config.autocast):
        memory = model.encode(batch.sources) if config.doubly_stochastic or config.ctc else None
        step = model.teach(batch, memory, need_attention=config.doubly_stochastic > 0)
        loss, gold = loss_and_gold(step, batch, config.label_smoothing, scale=1 / tokens)
    smoothed, gold_sum, reward = loss.item(), float(gold.sum()), None
    if config.r_drop:
        with torch.autocast(batch.inputs.device.type, torch.bfloat16, enabled=config.autocast):
            second, apart = agreement(model, batch, step, config, tokens)
        loss = (loss + second) / 2 + apart
        smoothed = loss.item()
    if teacher is not None and config.distill.weight:
        weight, temperature = config.distill.weight, config.distill.temperature
        learnt = distillation(step, batch.mask, teacher.probabilities(batch, temperature), temperature)
        loss = (1 - weight) * loss + weight * learnt / tokens
        smoothed = loss.item()
    if step.choices is not None:
        reward = gold_sum
        expected = reward / batch.tokens if baseline is None else baseline
        loss = loss + surrogate(step.choices, batch.mask, gold, expected, config.reinforce) / tokens
    if memory is not None and step.attention is not None:
        spread = doubly_stochastic(step.attention, batch.mask, memory.mask)
        loss = loss + config.doubly_stochastic * spread / tokens
    if memory is not None and config.ctc:
        loss = (1 - config.ctc) * loss + config.ctc * summed_ctc(model, memory, batch) / tokens
    loss.backward()
    return ShareResult(-gold_sum / tokens, smoothed, reward, step.state.detach() if carries else None)
