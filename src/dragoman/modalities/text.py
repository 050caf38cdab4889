"""Text: token ids. An end symbol closes every source, so that none is empty."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from dragoman.config import ConfigError, Section
from dragoman.data import tokenizers
from dragoman.data.audit.text_statistics import is_tag
from dragoman.data.modality import Modality, pad_tokens
from dragoman.data.tokenizers import Tokenizer, TokenizerConfig
from dragoman.data.vocabulary import EOS, SPECIALS, UNK, word_dropout_rates
from dragoman.types import Axis, PaddedArrays

SENTENCE_ENDS = tuple(".!?…。！？؟۔।")  # characters that end a sentence


class Text(Modality):
    frontend_kind = "text"
    has_tokenizer = True

    class Config(Section):
        tokenizer: TokenizerConfig = TokenizerConfig()
        embedding: int = Field(128, gt=0)
        """Width of a token's vector."""
        dropout: float = Field(0.0, ge=0.0, lt=1.0)
        states: Literal["tokens", "sentences"] = "tokens"
        """sentences: one state per sentence, the weighted sum of its tokens' vectors."""
        tags: bool = False
        """Tokens in angle brackets are features of the row, not letters: they have a vector that says so, and
        a Transformer or a convolutional encoder does not count them as positions. Rotary positions count
        all."""

        @model_validator(mode="after")
        def _check_combination(self) -> Self:
            if self.tags and self.states == "sentences":
                raise ValueError("tags = true is for states = 'tokens': a sentence is one state with the tags in it")
            return self

    config: Config
    tokenizer: Tokenizer

    def __init__(self, config: Config, tokenizer: Tokenizer) -> None:
        self.config, self.tokenizer = config, tokenizer

    @classmethod
    def default_settings(cls, embedding: int, dropout: float) -> Mapping[str, Any]:
        return {"embedding": embedding, "dropout": dropout}

    @classmethod
    def fit(cls, config: Any, raw: Sequence[str], name: str) -> Text:
        return cls(config, tokenizers.fit(config.tokenizer, raw, name))

    @property
    def notes(self) -> list[str]:
        return self.tokenizer.notes

    def array(self, raw: str) -> np.ndarray:
        return np.array([*self.tokenizer.encode(raw), EOS], dtype=np.int64)

    def augmented(self, raw: str, generator: np.random.Generator) -> np.ndarray:
        return np.array([*self.tokenizer.sample(raw, generator), EOS], dtype=np.int64)

    def augmenting(self, raws: Sequence[str]) -> Callable[[np.random.Generator], Sequence[np.ndarray]]:
        return tokenizers.segmentation_sampler(self.tokenizer, raws, EOS)

    @property
    def varies(self) -> bool:
        return self.tokenizer.varies

    def collate(self, arrays: Sequence[np.ndarray]) -> PaddedArrays:
        return pad_tokens(arrays)

    def frontend_options(self) -> Mapping[str, Any]:
        return {
            "width": self.config.embedding,
            "dropout": self.config.dropout,
            "drop_rates": word_dropout_rates(self.tokenizer.counts),
            "unknown": UNK,
            "sentence_ends": self._sentence_ends if self.config.states == "sentences" else None,
            "tags": self._tags if self.config.tags else None,
        }

    def axis(self, array: np.ndarray, stride: int = 1) -> Axis:
        pieces = self.tokenizer.pieces(array)
        if self.config.states == "sentences":
            ends = np.flatnonzero(self._sentence_ends[array]) + 1
            pieces = [" ".join(pieces[begin:end]) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
        return Axis("text", tuple(" ".join(pieces[at : at + stride]) for at in range(0, len(pieces), stride)))

    def spans(self, array: np.ndarray, stride: int = 1) -> tuple[str, list[tuple[int, int]]]:
        spans = self.tokenizer.spans(array)
        if self.config.states == "sentences":
            ends = np.flatnonzero(self._sentence_ends[array]) + 1
            spans = [(spans[begin][0], spans[end - 1][1]) for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
        joined = [(spans[at][0], spans[at : at + stride][-1][1]) for at in range(0, len(spans), stride)]
        return self.tokenizer.decode(array), joined

    def describe_reading(self) -> Mapping[str, Any]:
        return {"states": self.config.states}

    @cached_property
    def _sentence_ends(self) -> np.ndarray:
        """(V,) True for tokens that end a sentence: EOS, and those that end with a full stop."""
        pieces = self.tokenizer.pieces(range(len(self.tokenizer.counts)))
        return np.array([index == EOS or piece.endswith(SENTENCE_ENDS) for index, piece in enumerate(pieces)])

    @property
    def has_tags(self) -> bool:
        """Whether some tokens of the vocabulary are tags, each with a state of its own."""
        return self.config.states == "tokens" and bool(self._tag_ids.any())

    @property
    def _tags(self) -> np.ndarray:
        if not self.has_tags:
            raise ConfigError(
                "source.tags = true: no token of the vocabulary is a tag in angle brackets, such as <V>; write tags "
                "between spaces and use tokenizer.kind = 'symbols', or set tags = false"
            )
        return self._tag_ids

    @cached_property
    def _tag_ids(self) -> np.ndarray:
        """(V,) True for tokens that are tags."""
        pieces = self.tokenizer.pieces(range(len(self.tokenizer.counts)))
        return np.array([index >= len(SPECIALS) and is_tag(piece) for index, piece in enumerate(pieces)])

    def save(self, folder: Path, name: str) -> list[str]:
        return self.tokenizer.save(folder, name)

    @classmethod
    def load(cls, config: Any, folder: Path, name: str) -> Text:
        return cls(config, tokenizers.load(folder, name))
