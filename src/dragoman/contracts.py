"""What can be plugged in. One file in the right folder is one part, found by its filename.

Every class here states its laws; ``tests/laws`` holds each file of the folder to them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from torch import Tensor, nn

from dragoman.config import Section
from dragoman.types import Axis, Memory, Padded, State, Step, Tree

Layout: TypeAlias = Literal["sequence", "picture"]  # of Padded: (B, S, D) or (B, H, W, C)


class Part(nn.Module):
    """A module with a ``Config`` of its own beside it. Widths are wiring: given to the constructor, not configured."""

    Config: ClassVar[type[Section]]
    reference: ClassVar[str] = ""  # the paper it comes from, with the equation


@dataclass(frozen=True, slots=True)
class Attended:
    """What attention gives back for Q queries of each source."""

    context: Tensor  # (B, Q, D)
    weights: Tensor  # (B, Q, A, S); rows sum to 1, padding is exactly 0


class Encoder(Part):
    """Vectors in, ``Memory`` out. Built as ``Kind(config, input_width=…)``.

    Laws: padding is invisible (states at real positions, and the summary, are the same however much padding
    follows, whatever stands in it); a batch of one equals a row of a batch of many; a row of S real positions has
    ceil(S / stride) states, a picture ceil(H / stride) * ceil(W / stride), real ones first; pure (two calls give the
    same result, nothing is kept on ``self``); the gradient reaches every parameter. Self-attention that is told is what
    ``forward`` uses: distributions, 0 on padding.
    """

    reads: ClassVar[Layout] = "sequence"

    width: int  # D of Memory.states
    summary_shape: tuple[int, int, int] | None  # (L, P, D) of Memory.summary, or None
    stride: int = 1  # input positions (of a picture: pixels along a side) that one state stands for

    @abstractmethod
    def forward(self, source: Padded) -> Memory:
        """``source.data`` is (B, S, input_width), or (B, H, W, input_width) where ``reads`` says so."""

    def self_attention(self, source: Padded) -> Tensor | None:
        """Where each position looks, (B, L, H, S, S), of an encoder whose layers have heads."""
        return None


class Attention(Part):
    """Queries against the states of a memory, which it treats as a set.

    Built as ``Kind(config, query_width=…, memory_width=…)``.

    Laws: weights are a distribution over real positions and exactly 0 on padding; permuting the memory permutes
    the weights and leaves the context alone, unless it is ``recurrent``; queries do not see each other; gradient
    reaches every parameter.

    Weighing and reading are two steps, so that a decoder can put a choice between them (``nn/selection.py``).
    """

    recurrent: ClassVar[bool] = False  # sees the weights of the step before, and with them the order of the states

    width: int  # D of the context
    maps: int = 1  # A

    @abstractmethod
    def prepare(self, memory: Memory) -> Tree:
        """All that depends on the source alone, computed once; axis 0 is B."""

    @abstractmethod
    def weigh(self, query: Tensor, prepared: Tree, previous: Tensor | None = None) -> Tensor:
        """(B, Q, query_width) → weights (B, Q, A, S). ``previous``: each query's of the step before."""

    @abstractmethod
    def read(self, weights: Tensor, prepared: Tree) -> Tensor:
        """Any weights (B, Q, A, S), not only one's own → contexts (B, Q, D)."""

    def forward(self, query: Tensor, prepared: Tree, previous: Tensor | None = None) -> Attended:
        weights = self.weigh(query, prepared, previous)
        return Attended(self.read(weights, prepared), weights)


class Decoder(Part):
    """Advances by any number of tokens in one call.

    Built as ``Kind(config, vocabulary=…, memory_width=…, summary_shape=…)``; the last two are None for a language
    model, which has no source.

    Teacher forcing is the call with all gold tokens, greedy and beam are the call with one, forced scoring and a
    forced prefix the call with some. Laws: chunking (any split of the tokens gives the same result); causality;
    reorder (permuting rows permutes results); select; padding of the memory is invisible; ``log_probs`` is
    normalised; pure (the state given is unchanged); asking for attention changes no output; batch of one equals a
    row of many; works without memory, as a language model; gradient reaches every parameter; where ``endless``, the
    state of a language model does not grow. Self-attention that is told is what ``forward`` uses: distributions, 0 on
    what comes later.
    """

    endless: ClassVar[bool] = False  # a language model's state stays as large, however many tokens it has read
    reads_source: ClassVar[bool] = False  # reads the source's own vectors: no encoder may come between

    vocabulary: int  # V
    maps: int  # A of Step.attention

    @abstractmethod
    def start(self, memory: Memory | None, sources: int) -> State:
        """The state before the first token, one row a source."""

    @abstractmethod
    def forward(self, tokens: Tensor, state: State, need_attention: bool = False) -> Step:
        """``tokens`` is (N, T), N a multiple of ``state.sources``."""

    def self_attention(self, tokens: Tensor, state: State) -> Tensor | None:
        """Where each token looks back, (N, L, H, T, P), of a decoder whose layers have heads.

        P is what it has read so far: tokens, and where ``reads_source`` the positions of the source before them.
        """
        return None


class ReadingDecoder(Decoder):
    """A decoder that can be the one network over source and target: as a language model it reads vectors too.

    Law: vectors read are tokens read.
    """

    @abstractmethod
    def read(self, vectors: Padded, state: State) -> tuple[Tensor, State]:
        """Advance a language model by given vectors (N, S, E) in place of tokens, rows of different length.

        Returns the features (N, S, D) after each vector, and the state after the last real vector of each row.
        """


class Frontend(nn.Module):
    """The trained end of a modality: what ``Modality.collate`` gave → vectors (B, S, width), or (B, H, W, width)."""

    width: int

    @abstractmethod
    def forward(self, source: Padded) -> Padded: ...


class Modality(ABC):
    """One kind of input: raw → tensor → vectors, and how its axis is labelled. The only part that knows raw data.

    Raw is always a string: a text, or where ``is_file`` the path of a file. Laws: a sequence is never empty, whatever
    the input; ``axis`` has one label a state of the encoder; ``length`` is cheap; what ``save`` writes, ``load`` reads
    back to the same behaviour, from the folder alone.
    """

    Config: ClassVar[type[Section]]
    is_file: ClassVar[bool] = False
    gives: ClassVar[Layout] = "sequence"

    @classmethod
    @abstractmethod
    def fit(cls, config: Any, raw: Sequence[str], name: str) -> Modality:
        """Learn what must be learnt (a vocabulary, a normalisation) from the training side of the source ``name``."""

    @property
    def notes(self) -> list[str]:
        """What a person should be told about what was learnt."""
        return []

    @abstractmethod
    def tensor(self, raw: str) -> Tensor:
        """(S,) token ids, (S, D) vectors, or (H, W, C) pixels."""

    def augmented(self, raw: str, chance: np.random.Generator) -> Tensor:
        """As ``tensor``, changed at random in a way that keeps its meaning: what training sees."""
        return self.tensor(raw)

    def augmenting(self, raws: Sequence[str]) -> Callable[[np.random.Generator], Sequence[Tensor]]:
        """``augmented`` of many at once, as often as it is called: what an epoch sees."""
        return lambda chance: [self.augmented(raw, chance) for raw in raws]

    @property
    def varies(self) -> bool:
        """Does ``augmented`` change anything? What it leaves alone can be kept once it was read."""
        return type(self).augmented is not Modality.augmented

    def length(self, raw: str) -> int:
        """How much of a batch it takes, in positions. Where ``is_file``, told without reading all of the file."""
        return len(self.tensor(raw))

    @abstractmethod
    def collate(self, tensors: Sequence[Tensor]) -> Padded: ...

    @abstractmethod
    def frontend(self) -> Frontend: ...

    @abstractmethod
    def axis(self, raw: str, stride: int = 1) -> Axis:
        """The positions behind an encoder of this stride."""

    @abstractmethod
    def save(self, folder: Path, name: str) -> None: ...

    @classmethod
    @abstractmethod
    def load(cls, config: Any, folder: Path, name: str) -> Modality: ...
