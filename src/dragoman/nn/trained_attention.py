"""Multi-head attention (Vaswani et al. 2017, eq. 1) as training on a CPU wants it: one function with its own backward.

Products are the same as elsewhere. What is saved lies between them: the scale is part of a product, what is hidden is
what the scores are added to, Q, K and V are cut into heads from where one projection left them and their gradients are
put back there, and rows of scores are never shorter than a vector register. (torch's softmax takes shorter ones number
by number: 11 columns took 14 times as long as 16.)
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

FEWEST_COLUMNS = 16  # float32 numbers in a register of 512 bits


class TrainedAttention(torch.autograd.Function):
    """``apply(heads, hidden, projected)`` with Q, K and V (B, T, 3 D) in one, or ``apply(heads, hidden, Q, K, V)``.

    ``hidden`` is True where a query must not look, broadcastable to (B, Q, S); None: it may look everywhere.
    Returns the joined contexts (B, Q, D) and the weights (B, H, Q, S).
    """

    @staticmethod
    def forward(ctx: Any, heads: int, hidden: Tensor | None, *parts: Tensor) -> tuple[Tensor, Tensor]:
        packed = len(parts) == 1
        query, keys, values = parts[0].chunk(3, -1) if packed else parts
        batch, asked, width = query.shape
        length = keys.shape[1]
        columns = max(length, FEWEST_COLUMNS)
        q, k, v = _heads(query, heads, asked), _heads(keys, heads, columns), _heads(values, heads, columns)
        scores = query.new_empty(batch, heads, asked, columns)
        if hidden is not None or columns > length:
            scores.copy_(_banned(query, hidden, length, columns))
        begin = 0.0 if hidden is None and columns == length else 1.0  # 0: what stands in the new scores is not read
        scale = (width // heads) ** -0.5
        flat = scores.view(batch * heads, asked, columns)
        flat.baddbmm_(q, k.transpose(1, 2), beta=begin, alpha=scale)
        torch.softmax(flat, -1, out=flat)
        context = _joined(torch.bmm(flat, v), batch, asked, query.new_empty(batch, asked, width))
        ctx.save_for_backward(q, k, v, flat)
        ctx.heads, ctx.scale, ctx.length, ctx.packed = heads, scale, length, packed
        ctx.set_materialize_grads(False)
        return context, scores[..., :length]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_context: Tensor | None, to_weights: Tensor | None) -> tuple[Tensor | None, ...]:
        if to_context is None and to_weights is None:
            return (None,) * (2 + (1 if ctx.packed else 3))
        q, k, v, weights = ctx.saved_tensors
        rows, asked, columns = weights.shape
        heads, length = ctx.heads, ctx.length
        batch = rows // heads
        if to_context is None:
            to_v, to_w = torch.zeros_like(v), torch.zeros_like(weights)
        else:
            to_c = _heads(to_context, heads, asked)
            to_v = torch.bmm(weights.transpose(1, 2), to_c)
            to_w = torch.bmm(to_c, v.transpose(1, 2))
        if to_weights is not None:
            to_w.view(batch, heads, asked, columns)[..., :length] += to_weights
        to_scores = torch._softmax_backward_data(to_w, weights, -1, weights.dtype, grad_input=to_w)
        to_q = _scaled(to_scores, k, ctx.scale)
        to_k = _scaled(to_scores.transpose(1, 2), q, ctx.scale)
        width = heads * q.shape[-1]
        if ctx.packed:
            whole = q.new_empty(batch, asked, 3 * width)
            for part, made in zip(whole.chunk(3, -1), (to_q, to_k, to_v), strict=True):
                _joined(made, batch, asked, part)
            return None, None, whole
        made_of = ((to_q, asked), (to_k, length), (to_v, length))
        return None, None, *(_joined(made, batch, rows, q.new_empty(batch, rows, width)) for made, rows in made_of)


def _heads(x: Tensor, heads: int, rows: int) -> Tensor:
    """(B, T, D) → (B * H, rows, D / H), with rows of zeros behind the T."""
    batch, length, width = x.shape
    cut = x.new_empty(batch, heads, rows, width // heads)
    by_head = x.view(batch, length, heads, width // heads).transpose(1, 2)
    if rows == length:
        cut.copy_(by_head)
    else:
        cut[:, :, :length].copy_(by_head)
        cut[:, :, length:].zero_()
    return cut.view(batch * heads, rows, width // heads)


def _joined(x: Tensor, batch: int, rows: int, out: Tensor) -> Tensor:
    """The inverse of ``_heads`` for the first ``rows``, into ``out`` (B, rows, D)."""
    by_head = x.view(batch, -1, *x.shape[1:])
    heads, width = by_head.shape[1], by_head.shape[3]
    out.view(batch, rows, heads, width).copy_(by_head[:, :, :rows].transpose(1, 2))
    return out


def _banned(like: Tensor, hidden: Tensor | None, length: int, columns: int) -> Tensor:
    """-inf where nobody may look, 0 elsewhere; broadcastable to (B, H, Q, columns)."""
    shape = (1, 1) if hidden is None else hidden.shape[:2]
    banned = like.new_zeros(shape[0], 1, shape[1], columns)
    banned[..., length:] = -torch.inf
    if hidden is not None:
        banned[..., :length].masked_fill_(hidden[:, None], -torch.inf)
    return banned


def _scaled(left: Tensor, right: Tensor, scale: float) -> Tensor:
    out = left.new_empty(left.shape[0], left.shape[1], right.shape[2])
    return out.baddbmm_(left, right, beta=0.0, alpha=scale)
