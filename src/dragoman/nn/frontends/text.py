"""Token embeddings, with word dropout in training, and optionally one vector for each sentence.

The vector of a sentence is the sum of its token vectors, each weighted by its position (Sukhbaatar
et al. 2015, section 4.1). A story of a thousand words then becomes about a hundred states, and the
words of one fact end up in one of them. This lets little data teach a model which facts matter
(Dehghani et al. 2019 encode stories for a Transformer in the same way).

Tags may be told from the other tokens (Wu et al. 2021, section 3.1): each token also has the vector of
its type, and tags are not counted as positions. There, all tags are at position 0 and letters are
counted from 1. Here letters are counted from 0, as without tags, and the vector of the type is all
that tells where a tag is.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from dragoman.nn.blocks.layers import Embedding
from dragoman.nn.blocks.word_dropout import drop_words
from dragoman.nn.contracts import Frontend
from dragoman.nn.lowering import Lowering, to_array
from dragoman.program.table import Source
from dragoman.types import Padded


class TextFrontend(Frontend):
    token_tables = ("embedding.weight",)

    def __init__(
        self,
        width: int,
        dropout: float,
        drop_rates: np.ndarray,
        unknown: int,
        sentence_ends: np.ndarray | None = None,
        tags: np.ndarray | None = None,
    ) -> None:
        """``drop_rates`` (V,): probability that training replaces a token by ``unknown``.

        ``sentence_ends`` (V,): True for tokens that end a sentence, to give one vector for each
        sentence. ``tags`` (V,): True for tokens that are tags, to tell them from the others.
        """
        super().__init__()
        self.width, self.unknown = width, unknown
        self.embedding = Embedding(len(drop_rates), width, dropout)
        # not persistent: the modality computes both from what it saves
        self.register_buffer("rare", torch.tensor(drop_rates), persistent=False)
        self.by_sentence = sentence_ends is not None
        ends = None if sentence_ends is None else torch.tensor(sentence_ends)
        self.register_buffer("closing", ends, persistent=False)
        self.types = None if tags is None else nn.Parameter(torch.randn(2, width) * width**-0.5)  # others, tags
        self.register_buffer("tags", None if tags is None else torch.tensor(tags), persistent=False)

    @property
    def token_embedding(self) -> Embedding:
        return self.embedding

    def forward(self, source: Padded) -> Padded:
        tokens = source.data
        if self.training:
            tokens = drop_words(tokens, self.rare, self.unknown)  # type: ignore[arg-type]
        vectors = self.embedding(tokens)  # (B, T, D)
        if self.types is not None:
            is_tag = self.tags[tokens]  # type: ignore[index]
            numbers = ((~is_tag).cumsum(1) - 1).masked_fill(is_tag, -1)
            return Padded(vectors + self.types[is_tag.long()], source.mask, numbers)
        if not self.by_sentence:
            return Padded(vectors, source.mask)
        return pool_sentences(vectors, source.data, source.mask, self.closing)  # type: ignore[arg-type]

    def lower(self, program: Lowering, name: str) -> str:
        tokens = program.source(Source(name, "tokens", len(self.embedding.weight)))
        if self.types is not None:
            is_tag: Tensor = self.tags  # type: ignore[assignment]
            typed = to_array(self.embedding.weight + self.types[is_tag.long()])
            vectors = program.add("embed", tokens, weights=[program.weight(f"frontends.{name}.typed", typed)])
            counted = program.weight(f"frontends.{name}.counted", to_array(~is_tag)[:, None])
            program.counted[vectors] = program.add("embed", tokens, weights=[counted])
            return vectors
        vectors = program.add("embed", tokens, weights=[program.parameter(self.embedding.weight)])
        if not self.by_sentence:
            return vectors
        ends = program.weight(f"frontends.{name}.ends", to_array(self.closing))  # type: ignore[arg-type]
        return program.add("pool_sentences", vectors, tokens, weights=[ends])


def pool_sentences(vectors: Tensor, tokens: Tensor, mask: Tensor, sentence_ends: Tensor) -> Padded:
    """Sum the vectors (B, T, D) of each sentence into one, (B, S, D).

    The last real token must end a sentence. The word at position j of J has weight (1 - j / J) - (k
    / D) (1 - 2 j / J) in dimension k, j and k from 1. So the sum can tell "John saw Mary" from
    "Mary saw John".
    """
    rows, length, width = vectors.shape
    ends = sentence_ends[tokens] & mask  # (B, T)
    sentence = ends.cumsum(1) - ends.long()  # (B, T) index of each token's sentence
    count = int(ends.sum(1).max())
    at = torch.arange(length, device=tokens.device).expand(rows, -1)
    # the first and last position of each sentence, (B, S), then of each token's sentence, (B, T)
    last = at.new_zeros(rows, count + 1).scatter_reduce(1, sentence, at.where(mask, 0), "amax")
    first = torch.cat([last.new_zeros(rows, 1), last[:, :-1] + 1], 1)
    begin, end = first.gather(1, sentence), last.gather(1, sentence)
    position = ((at - begin + 1) / (end - begin + 1).clamp(min=1))[:, :, None]  # (B, T, 1) j / J
    dimension = torch.arange(1, width + 1, device=vectors.device) / width  # (D,) k / D
    weighted = vectors * ((1 - position) - dimension * (1 - 2 * position)) * mask[:, :, None]
    index = sentence[:, :, None].expand_as(weighted)
    states = vectors.new_zeros(rows, count + 1, width).scatter_add(1, index, weighted)[:, :count]
    real = torch.arange(count, device=tokens.device) < ends.sum(1, keepdim=True)
    return Padded(states * real[:, :, None], real)
