"""Multi-head attention (Vaswani et al. 2017, eq. 1) with its own backward, for training on a CPU.

The matrix products are the same as in the plain twin. What is saved lies between them. The scale is
part of a product. The mask is what the scores are added to. Q, K and V are split into heads
straight from the tensor that one projection made, and their gradients are written back into one
tensor. Rows of scores are never shorter than a vector register: torch's softmax takes shorter ones
number by number, and 11 columns took 14 times as long as 16.

Both versions are two batched products and a softmax. At the lengths people train on a CPU with,
that is faster than torch's fused attention, and the weights are there for whoever wants to see
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from dragoman.nn.kernels._switch import Twin, sample, trains_fast

FEWEST_COLUMNS = 16  # float32 numbers in a register of 512 bits


def multi_head_attention(
    query: Tensor, keys: Tensor, values: Tensor, masked: Tensor | None, heads: int
) -> tuple[Tensor, Tensor]:
    """Return softmax(Q Kᵀ / sqrt(d)) V of every head. query (B, Q, D); keys, values (B, S, D).

    ``masked`` is True where a query must not look, broadcastable to (B, Q, S); None: it may look
    everywhere. Returns the contexts of all heads side by side (B, Q, D) and the weights (B, H, Q,
    S).
    """
    if trains_fast(query) and keys.shape[1]:
        return FastAttention.apply(heads, masked, query, keys, values)
    return plain_attention(query, keys, values, masked, heads)


def multi_head_self_attention(projected: Tensor, masked: Tensor | None, heads: int) -> tuple[Tensor, Tensor]:
    """Return ``multi_head_attention`` of Q, K and V side by side in ``projected`` (B, T, 3 D)."""
    if trains_fast(projected):
        return FastAttention.apply(heads, masked, projected)
    return plain_self_attention(projected, masked, heads)


def plain_attention(
    query: Tensor, keys: Tensor, values: Tensor, masked: Tensor | None, heads: int
) -> tuple[Tensor, Tensor]:
    """Return softmax(Q Kᵀ / sqrt(d)) V of every head, and the weights."""
    batch, queries, width = query.shape
    scale = (width // heads) ** -0.5
    scores = torch.bmm(split_heads(query * scale, heads), split_heads(keys, heads).transpose(1, 2))
    scores = scores.view(batch, heads, queries, -1)
    if masked is not None:
        scores = scores.masked_fill(masked[:, None], float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    context = torch.bmm(weights.view(batch * heads, queries, -1), split_heads(values, heads))
    return join_heads(context, heads), weights


def plain_self_attention(projected: Tensor, masked: Tensor | None, heads: int) -> tuple[Tensor, Tensor]:
    """Return ``plain_attention`` of Q, K and V that lie side by side."""
    query, keys, values = projected.chunk(3, -1)
    return plain_attention(query, keys, values, masked, heads)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """Reshape (B, T, D) to (B * H, T, D / H)."""
    batch, length, width = x.shape
    return x.view(batch, length, heads, width // heads).transpose(1, 2).reshape(batch * heads, length, width // heads)


def join_heads(x: Tensor, heads: int) -> Tensor:
    """Undo ``split_heads``."""
    rows, length, width = x.shape
    return x.view(rows // heads, heads, length, width).transpose(1, 2).reshape(rows // heads, length, heads * width)


class FastAttention(torch.autograd.Function):
    """The kernel, ``apply(heads, masked, projected)`` or ``apply(heads, masked, query, keys, values)``."""

    @staticmethod
    def forward(ctx: Any, heads: int, masked: Tensor | None, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        packed = len(inputs) == 1
        query, keys, values = inputs[0].chunk(3, -1) if packed else inputs
        batch, queries, width = query.shape
        length = keys.shape[1]
        columns = max(length, FEWEST_COLUMNS)
        q, k, v = _split(query, heads, queries), _split(keys, heads, columns), _split(values, heads, columns)
        scores = query.new_empty(batch, heads, queries, columns)
        if masked is not None or columns > length:
            scores.copy_(_added_mask(query, masked, length, columns))
        beta = 0.0 if masked is None and columns == length else 1.0  # with 0 the uninitialised scores are not read
        scale = (width // heads) ** -0.5
        flat = scores.view(batch * heads, queries, columns)
        flat.baddbmm_(q, k.transpose(1, 2), beta=beta, alpha=scale)
        torch.softmax(flat, -1, out=flat)
        context = _join(torch.bmm(flat, v), batch, queries, query.new_empty(batch, queries, width))
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
        rows, queries, columns = weights.shape
        heads, length = ctx.heads, ctx.length
        batch = rows // heads
        if to_context is None:
            to_v, to_w = torch.zeros_like(v), torch.zeros_like(weights)
        else:
            to_c = _split(to_context, heads, queries)
            to_v = torch.bmm(weights.transpose(1, 2), to_c)
            to_w = torch.bmm(to_c, v.transpose(1, 2))
        if to_weights is not None:
            to_w.view(batch, heads, queries, columns)[..., :length] += to_weights
        to_scores = torch._softmax_backward_data(to_w, weights, -1, weights.dtype, grad_input=to_w)
        to_q = _scaled_product(to_scores, k, ctx.scale)
        to_k = _scaled_product(to_scores.transpose(1, 2), q, ctx.scale)
        width = heads * q.shape[-1]
        if ctx.packed:
            to_projected = q.new_empty(batch, queries, 3 * width)
            for part, gradient in zip(to_projected.chunk(3, -1), (to_q, to_k, to_v), strict=True):
                _join(gradient, batch, queries, part)
            return None, None, to_projected
        lengths = ((to_q, queries), (to_k, length), (to_v, length))
        return (
            None,
            None,
            *(_join(gradient, batch, rows, q.new_empty(batch, rows, width)) for gradient, rows in lengths),
        )


def _split(x: Tensor, heads: int, rows: int) -> Tensor:
    """Copy (B, T, D) to (B * H, rows, D / H), with zeros after the T rows."""
    batch, length, width = x.shape
    out = x.new_empty(batch, heads, rows, width // heads)
    by_head = x.view(batch, length, heads, width // heads).transpose(1, 2)
    if rows == length:
        out.copy_(by_head)
    else:
        out[:, :, :length].copy_(by_head)
        out[:, :, length:].zero_()
    return out.view(batch * heads, rows, width // heads)


def _join(x: Tensor, batch: int, rows: int, out: Tensor) -> Tensor:
    """Copy the first ``rows`` of what ``_split`` made into ``out`` (B, rows, D)."""
    by_head = x.view(batch, -1, *x.shape[1:])
    heads, width = by_head.shape[1], by_head.shape[3]
    out.view(batch, rows, heads, width).copy_(by_head[:, :, :rows].transpose(1, 2))
    return out


def _added_mask(like: Tensor, masked: Tensor | None, length: int, columns: int) -> Tensor:
    """Return -inf where no query may look and 0 elsewhere; broadcastable to (B, H, Q, columns)."""
    shape = (1, 1) if masked is None else masked.shape[:2]
    mask = like.new_zeros(shape[0], 1, shape[1], columns)
    mask[..., length:] = -torch.inf
    if masked is not None:
        mask[..., :length].masked_fill_(masked[:, None], -torch.inf)
    return mask


def _scaled_product(left: Tensor, right: Tensor, scale: float) -> Tensor:
    out = left.new_empty(left.shape[0], left.shape[1], right.shape[2])
    return out.baddbmm_(left, right, beta=0.0, alpha=scale)


def _masks(queries: int, length: int) -> Iterator[Tensor | None]:
    yield None
    yield torch.stack([torch.zeros(length), torch.arange(length) > 0]).bool()[:, None]  # padding, of the second row
    yield torch.ones(queries, length).triu(1).bool()[None]  # the future


def _inputs() -> Iterator[tuple[Any, ...]]:
    for queries, length in ((1, 1), (3, 5), (2, FEWEST_COLUMNS), (4, FEWEST_COLUMNS + 3)):
        for masked in _masks(queries, length):
            yield sample(2, queries, 6), sample(2, length, 6), sample(2, length, 6), masked, 2


def _projected_inputs() -> Iterator[tuple[Any, ...]]:
    for length in (1, 7, FEWEST_COLUMNS + 1):
        for masked in _masks(length, length):
            yield sample(2, length, 3 * 6), masked, 2


TWINS = (
    Twin(multi_head_attention, plain_attention, _inputs),
    Twin(multi_head_self_attention, plain_self_attention, _projected_inputs),
)
