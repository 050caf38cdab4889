"""Connectionist temporal classification as a second opinion on the encoder (Graves et al. 2006).

    loss = (1 - w) * cross-entropy of the decoder  +  w * -log p_ctc(y | states)          (Kim et al. 2017, eq. 12)

Every state says a token or nothing; what they say together, repeats taken once, is to be the target. The order of the
states is then the order of the tokens, which attention otherwise has to find out. Decoding may ask it
too: ``search/ctc_prefix.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from dragoman.config import ConfigError
from dragoman.contracts import Layout
from dragoman.data.vocabulary import PAD
from dragoman.nn.model import Model
from dragoman.types import Batch, Memory

BLANK = PAD  # stands in no target, so it can mean that nothing is said


def check_head(layouts: Sequence[Layout], weight: float) -> None:
    """CTC listens to the states of one encoder, in their order. ``layouts``: what the encoders read."""
    if not weight or list(layouts) == ["sequence"]:
        return
    found = "there is none" if not layouts else "there are several" if len(layouts) > 1 else "this one is a picture"
    raise ConfigError(f"training.ctc listens to the states of one sequence, but {found}; set it to 0")


def summed_ctc(model: Model, memory: Memory, batch: Batch) -> Tensor:
    """-log p_ctc of the batch's targets without their end symbols, summed; 0 of a row whose states are too few."""
    assert model.ctc is not None
    logits = model.ctc(
        memory.states.to(model.ctc.weight.dtype)
    ).double()  # sums over very many paths; the tensor is small beside the model
    log_probs = torch.log_softmax(logits, -1).transpose(0, 1)  # (S, B, V)
    lengths = batch.mask.sum(1) - 1
    return torch.nn.functional.ctc_loss(
        log_probs, batch.targets, memory.mask.sum(1), lengths, blank=BLANK, reduction="sum", zero_infinity=True
    ).to(memory.states.dtype)


def needed_states(target: Sequence[int]) -> int:
    """The fewest states that can say it: one a token, and one of silence between two that are the same."""
    return len(target) + sum(first == second for first, second in pairwise(target))


def describe_ctc(weight: float, states: Sequence[int], targets: Sequence[Sequence[int]]) -> list[str]:
    """What a person should know before training: the weight, and the rows that cannot take part."""
    short = sum(needed_states(target) > count for count, target in zip(states, targets, strict=True))
    sentence = f"objective: {1 - weight:g} of the decoder's cross-entropy, {weight:g} of CTC over the encoder's states"
    if not short:
        return [sentence]
    return [
        sentence,
        f"CTC: {short:,} of {len(states):,} training rows have too few states for their target and train the decoder "
        "alone; an encoder of smaller stride gives more",
    ]
