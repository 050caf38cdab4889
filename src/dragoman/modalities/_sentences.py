"""A vector a sentence: the words of a sentence summed, each weighed by its place (Sukhbaatar et al. 2015, section 4.1).

A story of a thousand words is then some hundred states, and what belongs to one fact stands in one of them. That lets
little data teach a model which facts matter (Dehghani et al. 2019 read stories for a Transformer in the same way).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dragoman.data.vocabulary import EOS
from dragoman.types import Padded

MARKS = tuple(".!?…。！？؟۔।")  # that close a sentence


def closing(pieces: Sequence[str]) -> Tensor:
    """(V,) which tokens end a sentence: those that end in a mark, and the end symbol."""
    return torch.tensor([index == EOS or piece.endswith(MARKS) for index, piece in enumerate(pieces)])


def split(tokens: Sequence[int], closes: Tensor) -> list[slice]:
    """Where the sentences of one text stand."""
    ends = [at + 1 for at, token in enumerate(tokens) if closes[token]]
    return [slice(begin, end) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]


def pool(vectors: Tensor, tokens: Tensor, mask: Tensor, closes: Tensor) -> Padded:
    """vectors (B, T, D) of tokens (B, T) → a vector a sentence, (B, S, D). The last real token is the end symbol.

    The word at place j of J has weight (1 - j / J) - (k / D) (1 - 2 j / J) in dimension k, j and k from 1: so a sum
    can tell "John saw Mary" from "Mary saw John".
    """
    rows, length, width = vectors.shape
    ends = closes[tokens] & mask  # (B, T)
    sentence = ends.cumsum(1) - ends.long()  # (B, T) whose sentence a token is in
    count = int(ends.sum(1).max())
    at = torch.arange(length, device=tokens.device).expand(rows, -1)
    # the first and the last place of each sentence, (B, S), then of each token's, (B, T)
    last = at.new_zeros(rows, count + 1).scatter_reduce(1, sentence, at.where(mask, 0), "amax")
    first = torch.cat([last.new_zeros(rows, 1), last[:, :-1] + 1], 1)
    begin, end = first.gather(1, sentence), last.gather(1, sentence)
    place = ((at - begin + 1) / (end - begin + 1).clamp(min=1))[:, :, None]  # (B, T, 1) j / J
    dimension = torch.arange(1, width + 1, device=vectors.device) / width  # (D,) k / D
    weighed = vectors * ((1 - place) - dimension * (1 - 2 * place)) * mask[:, :, None]
    into = sentence[:, :, None].expand_as(weighed)
    states = vectors.new_zeros(rows, count + 1, width).scatter_add(1, into, weighed)[:, :count]
    real = torch.arange(count, device=tokens.device) < ends.sum(1, keepdim=True)
    return Padded(states * real[:, :, None], real)
