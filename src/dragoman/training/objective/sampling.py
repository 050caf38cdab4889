"""Scheduled sampling (Bengio et al. 2015): some input tokens are the decoder's own.

Each input token is the gold one with probability ε, which falls from update to update (section 2.4;
i counts the updates since ``start``):

    linear           ε_i = max(floor, k - slope * i)
    exponential      ε_i = max(floor, k ** i)              k < 1
    inverse-sigmoid  ε_i = max(floor, k / (k + exp(i / k)))   k >= 1

One way serves every decoder. First the inputs are sampled without gradient, position by position,
each from the model's prediction after the mixed tokens before it. Then the model is trained on the
mixed inputs in one ordinary call. In the paper no gradient passes through a sample either, so this
is the paper's loop over time, for recurrent decoders and for those that run whole sequences.
Sampling all tokens at once from a teacher-forced pass (Mihaylova & Martins 2019; one pass of
Duckworth et al. 2019) would be faster for the latter, but such a token is conditioned on the gold
prefix, not on the mixed one that it will follow. The decoder's contract makes the exact way cheap
enough: a call takes any number of tokens, so positions where no row of the batch samples are passed
in one piece.

Tokens are sampled as at inference: without dropout, and never padding, the unknown token, the start
or the end symbol, which no token follows there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import nn

from dragoman.data.vocabulary import SPECIALS
from dragoman.nn.model import Model
from dragoman.types import Batch


@torch.no_grad()
def sample_inputs(model: Model, batch: Batch, share: float) -> Batch:
    """Return the batch with about 1 - ``share`` of its inputs replaced by the model's own."""
    sampled = (torch.rand(batch.inputs.shape, device=batch.inputs.device) >= share) & batch.mask  # (B, T)
    sampled[:, 0] = False  # the start symbol is given at inference too
    columns = sampled.any(0).nonzero()[:, 0].tolist()
    if not columns:
        return batch
    inputs = batch.inputs.clone()
    with _eval_mode(model):
        state = batch.state or model.start(model.encode(batch.sources), len(inputs))
        begin = 0
        for column in columns:
            step = model(inputs[:, begin:column], state)
            rows = sampled[:, column]
            if step.copies is not None:
                logits = step.next_log_probs()[rows]
            else:  # (sampled rows, V); the other rows are not projected
                logits = step.readout(step.features[rows, -1]).float()
            logits[:, : len(SPECIALS)] = float("-inf")
            inputs[rows, column] = torch.multinomial(logits.softmax(-1), 1)[:, 0]
            state, begin = step.state, column
    return replace(batch, inputs=inputs)


@contextmanager
def _eval_mode(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
