"""Attention to a cache of keys and values that all hypotheses of a source share (Vaswani et al. 2017, eq. 1).

The cache is never reordered. Every token that a row reads adds an entry, and the row keeps the
numbers of its entries, (N, t): those of the tokens before it, and of no other hypothesis. A number
of -1 stands for no entry, where rows have read different numbers of tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from dragoman.nn.kernels.attention import FEWEST_COLUMNS
from dragoman.types import Growing

FEW_QUERIES = 16  # of all sources together; of more, two batched products are faster than torch's fused attention


def by_head(x: Tensor, heads: int) -> Tensor:
    """View (B, T, D) as (B, H, T, D / H)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def padded_columns(count: int, queries: int) -> int:
    """Return how many entries to look at, of which ``count`` are real; the others are to be hidden.

    A softmax over fewer numbers than a vector register has takes longer than one over more.
    """
    return max(count, FEWEST_COLUMNS) if queries > FEW_QUERIES else count


def hide_others(entries: Tensor, columns: int, sources: int, like: Tensor) -> Tensor:
    """Return -inf for what a row must not see of ``columns`` entries and 0 elsewhere, (B, 1, k, columns).

    ``entries`` (N, t) are the numbers of those that it sees.
    """
    hidden = like.new_full((len(entries), columns + 1), -torch.inf)
    hidden.scatter_(1, entries % (columns + 1), 0.0)  # -1 is the last column, which is cut off
    return hidden[:, :columns].view(sources, 1, -1, columns)


def hide_padding(padding: Tensor, columns: int, like: Tensor) -> Tensor:
    """Return -inf for padding, and from column S of ``padding`` (B, S) on; 0 elsewhere, (B, 1, 1, columns)."""
    hidden = like.new_full((len(padding), 1, 1, columns), -torch.inf)
    hidden[:, 0, 0, : padding.shape[1]].masked_fill_(~padding, 0.0)
    return hidden


def attend(
    query: Tensor, keys: Tensor, values: Tensor, hidden: Tensor | None, need_weights: bool
) -> tuple[Tensor, Tensor | None]:
    """Return softmax(Q Kᵀ / sqrt(d) + hidden) V, (B, H, Q, d), and the weights (B, H, Q, P) on request.

    query (B, H, Q, d); keys and values (B, H, P, d); ``hidden`` broadcastable to (B, H, Q, P).
    """
    batch, _, queries, width = query.shape
    is_fused = batch * queries <= FEW_QUERIES  # one operation in place of six, whether the weights are asked for or not
    weights = None
    if not is_fused or need_weights:
        scores = (query * width**-0.5) @ keys.transpose(2, 3)
        if hidden is not None:
            scores = scores + hidden if torch.is_grad_enabled() else scores.add_(hidden)
        weights = torch.softmax(scores, -1)
    if is_fused or weights is None:
        context = torch.nn.functional.scaled_dot_product_attention(query, keys, values, attn_mask=hidden)
        return context, weights
    return weights @ values, weights


def attend_in_parts(
    query: Tensor, keys: Tensor, values: Tensor, past: tuple[Tensor, Tensor], hidden: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return the contexts (N, H, T, d) of T new tokens of each row, and the weights (N, H, T, P + T).

    Each token sees the entries of ``past``, keys and values (B, H, P, d), as far as ``hidden`` (B,
    1, k, P) lets its row, and of the new ones, keys and values (N, H, T, d), those of its own row
    up to itself. So no row is compared with the new tokens of another.
    """
    _, heads, length, width = query.shape
    sources, count = past[0].shape[0], past[0].shape[2]
    query = query * width**-0.5
    shared = query.view(sources, -1, heads, length, width).transpose(1, 2)  # (B, H, k, T, d)
    earlier = shared.flatten(2, 3) @ past[0].transpose(2, 3)  # (B, H, k * T, P)
    earlier = earlier.view(sources, heads, -1, length, count)
    if hidden is not None:
        earlier = earlier + hidden[:, :, :, None]
    own = query @ keys.transpose(2, 3)  # (N, H, T, T)
    own = own + own.new_full((length, length), -torch.inf).triu(1)
    weights = torch.softmax(torch.cat([earlier.transpose(1, 2).flatten(0, 1), own], -1), -1)  # (N, H, T, P + T)
    to_past = weights[..., :count].view(sources, -1, heads, length, count).transpose(1, 2)
    context = to_past.flatten(2, 3) @ past[1]  # (B, H, k * T, d)
    context = context.view(sources, heads, -1, length, width).transpose(1, 2).flatten(0, 1)
    return context + weights[..., count:] @ values, weights


def drop_unseen(history: Mapping[str, Any], entries: Tensor, sources: int) -> tuple[Mapping[str, Any], Tensor]:
    """Return a cache without entries that no row sees, and the new numbers of the others.

    A beam forgets most of what it has read. As sources keep different numbers of entries, some of
    the others stay as padding. If most are seen, nothing changes.
    """
    first: Growing = next(iter(history.values()))["keys"]
    count = first.length
    seen = (hide_others(entries, count, sources, first.tensor) == 0).any(2).view(sources, count)  # (B, P)
    most = int(seen.sum(1).max())
    if 3 * most > 2 * count:
        return history, entries
    kept = seen.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[
        :, :most
    ]  # (B, most): those seen, in order
    numbers = (seen.cumsum(1) - 1).repeat_interleave(len(entries) // sources, 0)  # (N, P)
    renumbered = torch.where(entries < 0, -1, numbers.gather(1, entries.clamp_min(0)))

    def keep(grown: Growing) -> Growing:
        tensor = grown.tensor
        return Growing(tensor.gather(2, kept[:, None, :, None].expand(-1, tensor.shape[1], -1, tensor.shape[3])))

    return {name: {part: keep(grown) for part, grown in layer.items()} for name, layer in history.items()}, renumbered
