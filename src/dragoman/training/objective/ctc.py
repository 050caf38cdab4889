"""Connectionist temporal classification (Graves et al. 2006) of the encoder's states.

    loss = (1 - w) * cross-entropy of the decoder  +  w * -log p_ctc(y | states)    (Kim et al. 2017, eq. 12)

Every state predicts a token or a blank; the sequence of predictions, without repeats and blanks,
has to be the target. So the states are in the order of the tokens, which attention otherwise has to
find out. Search may use CTC too: ``search/ctc_prefix.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from dragoman.data.vocabulary import BLANK
from dragoman.nn.model import Model
from dragoman.types import Batch, Memory


def summed_ctc(model: Model, memory: Memory, batch: Batch) -> Tensor:
    """Return -log p_ctc of the batch's targets, summed; a row with too few states counts 0.

    The targets count without their end symbols.
    """
    assert model.ctc is not None
    logits = model.ctc(memory.states.to(model.ctc.weight.dtype))
    logits = logits.double()  # (B, S, V); sums over very many paths need it
    log_probs = torch.log_softmax(logits, -1).transpose(0, 1)  # (S, B, V)
    lengths = batch.mask.sum(1) - 1
    return torch.nn.functional.ctc_loss(
        log_probs, batch.targets, memory.mask.sum(1), lengths, blank=BLANK, reduction="sum", zero_infinity=True
    ).to(memory.states.dtype)


def needed_states(target: Sequence[int]) -> int:
    """Return the fewest states for a target: one per token, and a blank between equal ones."""
    return len(target) + sum(first == second for first, second in pairwise(target))


def describe_ctc(weight: float, states: Sequence[int], targets: Iterable[Sequence[int]]) -> list[str]:
    """Describe the weight of CTC, and how many rows cannot take part.

    ``targets``: without end symbols.
    """
    short = sum(needed_states(target) > count for count, target in zip(states, targets, strict=True))
    sentence = f"objective: {1 - weight:g} of the decoder's cross-entropy, {weight:g} of CTC over the encoder's states"
    if not short:
        return [sentence]
    return [
        sentence,
        f"CTC: {short:,} of {len(states):,} training rows have too few states for their target and train the decoder "
        "alone; an encoder of smaller stride gives more",
    ]
