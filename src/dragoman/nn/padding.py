"""Index operations on padded sequences: reverse, reorder, and move real positions to the front."""

from __future__ import annotations

import torch
from torch import Tensor


def reversed_order(mask: Tensor) -> Tensor:
    """Return indices (B, S) that reverse the real positions and keep padding in place.

    Reordering twice by them restores the order.
    """
    positions = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    flipped = mask.sum(1, keepdim=True) - 1 - positions
    return torch.where(mask, flipped, positions)


def reorder_positions(x: Tensor, order: Tensor) -> Tensor:
    """Return x (B, S, D) with the positions of each row in the order (B, S)."""
    return x.gather(1, order[:, :, None].expand_as(x))


def compact(states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Move real positions of states (B, S, D), mask (B, S) to the front; drop empty columns."""
    order = (~mask).int().argsort(dim=1, stable=True)[:, : int(mask.sum(1).max())]
    return states.gather(1, order[..., None].expand(-1, -1, states.shape[-1])), mask.gather(1, order)
