"""Hard attention: one position is selected, and nothing else is read (Xu et al. 2015, section 4.1).

In training the position is drawn from the soft weights (eq. 8), and REINFORCE trains the scores by
what the drawn positions lead to (``training/objective/reinforce.py``). Otherwise the likeliest
position is selected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from dragoman.process.generators import current_generator
from dragoman.types import Choices

Selection = Literal["soft", "hard"]
SMALLEST = 1e-30  # keeps the logarithm of a zero weight finite


def select_positions(weights: Tensor, draw: bool) -> tuple[Tensor, Choices | None]:
    """Turn distributions (B, Q, A, S) into one-hot weights; return what was drawn too, if it was.

    The choices are (B, Q), summed over all maps. A position of weight 0 is never drawn.
    """
    soft = weights.detach()
    if draw:  # the first of S exponential clocks with these rates
        soft = soft / torch.empty_like(soft).exponential_(generator=current_generator())
    index = soft.argmax(-1, keepdim=True)  # (B, Q, A, 1)
    hard = torch.zeros_like(soft).scatter_(-1, index, 1.0)
    if not draw:
        return hard, None
    logs = weights.clamp_min(SMALLEST).log()
    return hard, Choices(logs.gather(-1, index).sum((-1, -2)), -(weights * logs).sum((-1, -2)))


def join_choices(choices: Sequence[Choices], rows: int) -> Choices | None:
    """Join the choices of consecutive calls, each (B, k * T'), into (N, T)."""
    if not choices:
        return None
    log_probs = torch.cat([step.log_probs.view(rows, -1) for step in choices], 1)
    return Choices(log_probs, torch.cat([step.entropy.view(rows, -1) for step in choices], 1))
