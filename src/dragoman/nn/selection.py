"""Hard attention: one position is chosen, and nothing else is read (Xu et al. 2015, section 4.1).

In training the choice is drawn from the soft weights (eq. 8), so that every score can be trained by what its choices
lead to (``training/reinforce.py``); otherwise it is the likeliest position. Random numbers are those of
``nn/chance.py``, which every update seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from dragoman.nn.chance import chance
from dragoman.types import Choices

Selection = Literal["soft", "hard"]
SMALLEST = 1e-30  # keeps the logarithm of a weight of nothing finite


def choose(weights: Tensor, draw: bool) -> tuple[Tensor, Choices | None]:
    """Distributions (B, Q, A, S) → one-hot weights, and what was drawn (B, Q), all maps together.

    A position of weight 0 is never drawn.
    """
    soft = weights.detach()
    if draw:
        soft = soft / torch.empty_like(soft).exponential_(
            generator=chance()
        )  # the first of S exponential clocks that run at these rates
    index = soft.argmax(-1, keepdim=True)  # (B, Q, A, 1)
    hard = torch.zeros_like(soft).scatter_(-1, index, 1.0)
    if not draw:
        return hard, None
    logs = weights.clamp_min(SMALLEST).log()
    return hard, Choices(logs.gather(-1, index).sum((-1, -2)), -(weights * logs).sum((-1, -2)))


def by_row(drawn: Sequence[Choices], rows: int) -> Choices | None:
    """Draws one after another, each (B, k * T') → (N, T)."""
    if not drawn:
        return None
    log_probs = torch.cat([each.log_probs.view(rows, -1) for each in drawn], 1)
    return Choices(log_probs, torch.cat([each.entropy.view(rows, -1) for each in drawn], 1))
