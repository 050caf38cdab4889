"""Scheduled sampling (Bengio et al. 2015): some of the tokens that a decoder is fed are drawn from its predictions.

Each input token is the gold one with probability ε, which falls from update to update (section 2.4; i counts the
updates since ``start``):

    linear           ε_i = max(floor, k - slope * i)
    exponential      ε_i = max(floor, k ** i)              k < 1
    inverse-sigmoid  ε_i = max(floor, k / (k + exp(i / k)))   k >= 1

One way serves every decoder. The inputs are drawn first, without gradient, one position after the other, each from
the model's prediction after the mixed tokens before it; then the mixed inputs are trained on in one ordinary call. As
no gradient passes through a draw in the paper either, this is the paper's loop over time, for recurrent decoders and
for those that run whole sequences alike. Drawing all tokens at once from a teacher-forced pass (Mihaylova & Martins
2019; one pass of Duckworth et al. 2019) would be faster for the latter, but a token drawn so answers a gold prefix and
not the mixed one that it will stand behind. The decoder's contract makes the exact way cheap enough: a call takes any
number of tokens, so positions where no row of the batch draws are passed in one piece.

The draws are made as at inference, without dropout, and never give a token that cannot stand before another there:
padding, the unknown, start and end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import nn

from dragoman.config import Section
from dragoman.data.vocabulary import SPECIALS
from dragoman.nn.model import Model
from dragoman.types import Batch

DEFAULT_K = {"none": 1.0, "linear": 1.0, "exponential": 0.9998, "inverse-sigmoid": 500.0}
DEFAULT_SLOPE = 1e-4


class SamplingConfig(Section):
    schedule: Literal["none", "linear", "exponential", "inverse-sigmoid"] = "none"  # of the share of gold inputs
    k: float | None = Field(None, gt=0)  # the paper's k; not said: 1 linear, 0.9998 exponential, 500 inverse-sigmoid
    slope: float | None = Field(None, gt=0)  # linear: what the share loses an update; not said: 0.0001
    floor: float = Field(0.0, ge=0, lt=1)  # the share does not fall below this
    start: int = Field(0, ge=0)  # updates with gold inputs only, before the schedule begins

    @model_validator(mode="after")
    def _is_possible(self) -> SamplingConfig:
        said = [name for name in type(self).model_fields if name != "schedule" and name in self.model_fields_set]
        idle = [name for name in said if getattr(self, name) != type(self).model_fields[name].default]
        if self.schedule == "none" and idle:
            raise ValueError(f"{idle[0]!r} has no meaning while schedule = 'none'; choose a schedule, or leave it out")
        if self.slope is not None and self.schedule != "linear":
            raise ValueError(f"'slope' belongs to schedule = 'linear', not to {self.schedule!r}")
        if self.schedule == "exponential" and self.offset >= 1:
            raise ValueError(f"exponential: the share is k ** update, so k must be below 1 (got {self.k:g})")
        if self.schedule == "inverse-sigmoid" and self.offset < 1:
            raise ValueError(f"inverse-sigmoid: the share is k / (k + exp(update / k)), k at least 1 (got {self.k:g})")
        return self

    @property
    def offset(self) -> float:
        """The paper's k."""
        return DEFAULT_K[self.schedule] if self.k is None else self.k

    def describe(self) -> str:
        """What it amounts to, in a sentence; nothing where all inputs are gold."""
        if self.schedule == "none":
            return ""
        shares = ", ".join(
            f"{gold_share(self, update):.0%} at update {update:,}"
            for update in (1, self.start + 1000, self.start + 5000)
        )
        return f"scheduled sampling: {self.schedule}, k = {self.offset:g}; share of gold inputs: {shares}"


def gold_share(config: SamplingConfig, update: int) -> float:
    """The chance that an input token is the gold one, at ``update`` (from 1)."""
    i = update - config.start
    if config.schedule == "none" or i <= 0:
        return 1.0
    k = config.offset
    if config.schedule == "linear":
        share = k - (DEFAULT_SLOPE if config.slope is None else config.slope) * i
    elif config.schedule == "exponential":
        share = k**i
    else:
        share = k / (k + math.exp(min(i / k, 700.0)))
    return min(1.0, max(config.floor, share))


@torch.no_grad()
def mix(model: Model, batch: Batch, share: float) -> Batch:
    """``batch`` with the model's own tokens in place of about 1 - ``share`` of its inputs; its targets stay."""
    own = (torch.rand(batch.inputs.shape, device=batch.inputs.device) >= share) & batch.mask  # (B, T)
    own[:, 0] = False  # the start symbol is given at inference too
    columns = own.any(0).nonzero()[:, 0].tolist()
    if not columns:
        return batch
    inputs = batch.inputs.clone()
    with _as_at_inference(model):
        state = batch.state or model.start(model.encode(batch.sources), len(inputs))
        begin = 0
        for column in columns:
            step = model(inputs[:, begin:column], state)
            rows = own[:, column]
            logits = step.readout(step.features[rows, -1]).float()  # (drawing rows, V): others are not projected
            logits[:, : len(SPECIALS)] = float("-inf")
            inputs[rows, column] = torch.multinomial(logits.softmax(-1), 1)[:, 0]
            state, begin = step.state, column
    return replace(batch, inputs=inputs)


@contextmanager
def _as_at_inference(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
