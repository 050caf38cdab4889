"""Text in: tokens, then a vector for each. An end symbol closes every source, so that none is empty."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from dragoman.config import Section
from dragoman.contracts import Frontend, Modality
from dragoman.data import tokenizers
from dragoman.data.tokenizers import Tokenizer, TokenizerConfig
from dragoman.data.vocabulary import EOS, PAD, UNK
from dragoman.modalities import _sentences as sentences
from dragoman.nn.chance import chance
from dragoman.nn.layers import Embedding
from dragoman.types import Axis, Padded


class Text(Modality):
    class Config(Section):
        tokenizer: TokenizerConfig = TokenizerConfig()
        embedding: int = Field(128, gt=0)  # width of a token's vector
        dropout: float = Field(0.0, ge=0.0, lt=1.0)
        states: Literal["tokens", "sentences"] = "tokens"  # sentences: the vectors of a sentence's tokens as one

    def __init__(self, config: Config, tokenizer: Tokenizer) -> None:
        self.config, self.tokenizer = config, tokenizer

    @classmethod
    def fit(cls, config: Any, raw: Sequence[str], name: str) -> Text:
        return cls(config, tokenizers.fit(config.tokenizer, raw, name))

    @property
    def notes(self) -> list[str]:
        return self.tokenizer.notes

    def tensor(self, raw: str) -> Tensor:
        return torch.tensor([*self.tokenizer.encode(raw), EOS])

    def augmented(self, raw: str, chance: np.random.Generator) -> Tensor:
        return torch.tensor([*self.tokenizer.vary(raw, chance), EOS])

    def augmenting(self, raws: Sequence[str]) -> Callable[[np.random.Generator], Sequence[Tensor]]:
        return cut_anew(self.tokenizer, raws)

    @property
    def varies(self) -> bool:
        return self.tokenizer.varies

    def collate(self, tensors: Sequence[Tensor]) -> Padded:
        return pad_tokens(tensors)

    def frontend(self) -> TextFrontend:
        closing = self._closing if self.config.states == "sentences" else None
        return TextFrontend(self.config, rarity(self.tokenizer.counts), closing)

    def axis(self, raw: str, stride: int = 1) -> Axis:
        tokens = self.tensor(raw).tolist()
        pieces = self.tokenizer.pieces(tokens)
        if self.config.states == "sentences":
            pieces = [" ".join(pieces[where]) for where in sentences.split(tokens, self._closing)]
        return Axis("text", tuple(" ".join(pieces[at : at + stride]) for at in range(0, len(pieces), stride)))

    @cached_property
    def _closing(self) -> Tensor:
        """(V,) which tokens end a sentence."""
        return sentences.closing(self.tokenizer.pieces(range(len(self.tokenizer.counts))))

    def save(self, folder: Path, name: str) -> None:
        self.tokenizer.save(folder, name)

    @classmethod
    def load(cls, config: Any, folder: Path, name: str) -> Text:
        return cls(config, tokenizers.load(folder, name))


class TextFrontend(Frontend):
    def __init__(self, config: Text.Config, rare: Tensor, closing: Tensor | None = None) -> None:
        super().__init__()
        self.width = config.embedding
        self.embedding = Embedding(len(rare), config.embedding, config.dropout)
        self.register_buffer("rare", rare, persistent=False)
        self.by_sentence = closing is not None
        self.register_buffer("closing", closing, persistent=False)

    def forward(self, source: Padded) -> Padded:
        tokens = source.data
        if self.training:
            tokens = hide_rare(tokens, self.rare)  # type: ignore[arg-type]
        vectors = self.embedding(tokens)  # (B, T, E)
        if not self.by_sentence:
            return Padded(vectors, source.mask)
        return sentences.pool(vectors, source.data, source.mask, self.closing)  # type: ignore[arg-type]


def cut_anew(tokenizer: Tokenizer, texts: Sequence[str]) -> Callable[[np.random.Generator], Sequence[Tensor]]:
    """All texts as one epoch of training sees them, whenever it is called."""
    cut = cache(lambda: tokenizer.cuts(texts, EOS))  # dev is never cut anew, so it is not made ready for it

    def rows(chance: np.random.Generator) -> Sequence[Tensor]:
        ids, lengths = cut()(chance)
        return torch.from_numpy(ids).split(lengths.tolist())

    return rows


def pad_tokens(sequences: Sequence[Tensor]) -> Padded:
    data = torch.nn.utils.rnn.pad_sequence(list(sequences), batch_first=True, padding_value=PAD)
    lengths = torch.tensor([len(sequence) for sequence in sequences])
    return Padded(data, torch.arange(data.shape[1]) < lengths[:, None])


def rarity(counts: Sequence[int], strength: float = 0.25) -> Tensor:
    """(V,) chance that a token is hidden behind <unk> in training: strength / (strength + count).

    So <unk> is trained on what unseen symbols are like, the rare ones, and frequent ones are left alone
    (Kiperwasser & Goldberg 2016, section 4.3).
    """
    seen = torch.tensor(counts, dtype=torch.float)
    chance = strength / (strength + seen)
    chance[: EOS + 1] = 0.0
    return chance


def hide_rare(tokens: Tensor, rare: Tensor) -> Tensor:
    hidden = torch.rand(tokens.shape, device=tokens.device, generator=chance()) < rare[tokens]
    return tokens.masked_fill(hidden, UNK)
