"""Rotary positions: queries and keys are turned by an angle that grows with their position.

The product of a turned query and a turned key depends on the distance between them alone (Su et al.
2021, eq. 16), so attention sees relative positions. No vector is added to the tokens, no table is
learned, and there is no longest sequence.
"""

from __future__ import annotations

import torch
from torch import Tensor

from dragoman.nn.lowering import Lowering


def rotate(projected: Tensor, turns: Tensor | None, heads: int) -> Tensor:
    """Turn the queries and keys of Q, K and V side by side, (N, T, 3 D).

    ``turns`` are the sines and cosines of the angles in turn, (T, d) or (N, T, d) for heads of width
    d, as in sinusoidal position vectors; None: nothing is turned.
    """
    if turns is None:
        return projected
    width = projected.shape[-1] // 3
    pairs = projected[..., : 2 * width].unflatten(-1, (2 * heads, -1, 2))  # (N, T, 2 H, d / 2, 2)
    left, right = pairs.unbind(-1)
    sine, cosine = turns.unflatten(-1, (1, -1, 2)).unbind(-1)  # (..., T, 1, d / 2)
    turned = torch.stack([left * cosine - right * sine, left * sine + right * cosine], -1)  # eq. 34
    return torch.cat([turned.flatten(-3), projected[..., 2 * width :]], -1)


def lower_rotate(program: Lowering, projected: str, is_rotary: bool, heads: int) -> str:
    """Add the operation of ``rotate``, if there is one."""
    return program.add("rotate", projected, heads=heads) if is_rotary else projected
