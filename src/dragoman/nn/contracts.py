"""What the parts of a model promise: encoder, attention, decoder, frontend.

One file in the folder of its family is one part, found by its filename. Every class here states its
laws, and ``tests/laws`` checks each file of the folder against them. What others need to know of a
part is an attribute or a method here, with a default.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from dragoman.config import Section
from dragoman.nn.blocks.layers import Embedding
from dragoman.nn.lowering import LoweredMemory, Lowering, cannot_lower
from dragoman.types import Layout, Memory, Padded, State, Step, Tree


class Part(nn.Module):
    """A module with its ``Config`` beside it.

    Widths that follow from other parts are arguments of the constructor, not settings.
    """

    Config: ClassVar[type[Section]]
    reference: ClassVar[str] = ""  # the paper it comes from, with the equation


@dataclass(frozen=True, slots=True)
class Attended:
    """What attention returns for Q queries of each source."""

    context: Tensor  # (B, Q, D)
    weights: Tensor  # (B, Q, A, S); rows sum to 1, padding is exactly 0


class Encoder(Part):
    """Turns vectors into a ``Memory``. Built as ``Kind(config, input_width=…)``.

    Laws: padding is invisible (states at real positions, and the summary, do not depend on how much
    padding follows or what it contains); a batch of one equals a row of a batch of many; a row of S
    real positions has ceil(S / stride) states, a picture ceil(H / stride) * ceil(W / stride), real
    ones first; pure (two calls give the same result, nothing is stored on ``self``); the gradient
    reaches every parameter; ``longest`` positions can be read, and no more. The self-attention
    returned is what ``forward`` uses: distributions, 0 on padding.
    """

    reads: ClassVar[Layout] = "sequence"

    width: int  # D of Memory.states
    summary_shape: tuple[int, int, int] | None  # (L, P, D) of Memory.summary, or None
    stride: int = 1  # input positions per state; for a picture, pixels along the side of a region
    longest: int | None = None  # the most input positions of a sequence; None: any number
    self_attention_shape: tuple[int, int] = (0, 0)  # layers and heads of ``self_attention``

    @property
    def pretrained(self) -> tuple[str, nn.Module] | None:
        """Return the file of weights that new runs start from and the module it fills, or None."""
        return None

    @abstractmethod
    def forward(self, source: Padded) -> Memory:
        """Encode ``source`` (B, S, input_width), or (B, H, W, input_width) if it reads pictures."""

    def self_attention(self, source: Padded) -> Tensor | None:
        """Return where each position looks, (B, L, H, S, S), or None if there are no heads."""
        return None

    def lower(self, program: Lowering, x: str) -> LoweredMemory:
        """Add the operations of ``forward`` for one source x (S, input_width), without padding.

        Law: the program computes what ``forward`` does.
        """
        raise cannot_lower(self)


class Attention(Part):
    """Compares queries with the states of a memory, which it treats as a set.

    Built as ``Kind(config, query_width=…, memory_width=…)``.

    Laws: weights are a distribution over real positions and exactly 0 on padding; permuting the
    memory permutes the weights and leaves the context unchanged, unless it is ``recurrent``;
    queries do not see each other; the gradient reaches every parameter.

    Weighing and reading are two steps, so that a decoder can put hard attention between them
    (``nn/blocks/hard_attention.py``).
    """

    recurrent: ClassVar[bool] = False  # sees the weights of the previous step, and so the order of the states

    width: int  # D of the context
    maps: int = 1  # A

    @abstractmethod
    def prepare(self, memory: Memory) -> Tree:
        """Return all that depends on the source alone, computed once; axis 0 is B."""

    @abstractmethod
    def weigh(self, query: Tensor, prepared: Tree, previous: Tensor | None = None) -> Tensor:
        """Return the weights (B, Q, A, S) of queries (B, Q, query_width).

        ``previous`` (B, Q, A, S) are the weights of the previous step.
        """

    @abstractmethod
    def read(self, weights: Tensor, prepared: Tree) -> Tensor:
        """Return the contexts (B, Q, D) of any weights (B, Q, A, S), not only its own."""

    def forward(self, query: Tensor, prepared: Tree, previous: Tensor | None = None) -> Attended:
        """Weigh the states for each query and read them."""
        weights = self.weigh(query, prepared, previous)
        return Attended(self.read(weights, prepared), weights)

    def lower_prepare(self, program: Lowering, memory: LoweredMemory) -> Mapping[str, str]:
        """Add the operations of ``prepare`` and return the values that the others read, by name."""
        raise cannot_lower(self)

    def lower_weigh(self, program: Lowering, query: str, prepared: Mapping[str, str], previous: str | None) -> str:
        """Add the operations of ``weigh`` for one query (1, query_width); return the weights (A, S)."""
        raise cannot_lower(self)

    def lower_read(self, program: Lowering, weights: str, prepared: Mapping[str, str]) -> str:
        """Add the operations of ``read`` and return the context (1, D)."""
        raise cannot_lower(self)


class Decoder(Part):
    """Predicts tokens, and advances by any number of them in one call.

    Built as ``Kind(config, vocabulary=…, memory_width=…, summary_shape=…)``; the last two are None
    for a language model, which has no source.

    Teacher forcing is the call with all gold tokens, greedy and beam search are the call with one,
    forced scoring and a forced prefix the call with some.

    Laws: chunking (any split of the tokens gives the same result); causality; reorder (permuting
    rows permutes results); select; a search without gradients, token by token, sees what one call
    with gradients sees; two continuations of one state do not disturb each other; padding of the
    memory is invisible; ``log_probs`` is normalised; pure (the state passed in is unchanged);
    asking for attention changes no output; a batch of one equals a row of many; it works without
    memory, as a language model; the gradient reaches every parameter; where ``has_bounded_state``,
    the state of a language model does not grow; ``longest`` tokens can be read, and no more. The
    self-attention returned is what ``forward`` uses: distributions, 0 on what comes later.
    """

    has_bounded_state: ClassVar[bool] = False  # a language model's state does not grow with the tokens read
    reads_source: ClassVar[bool] = False  # reads the vectors of the source itself, without an encoder
    token_tables: ClassVar[tuple[str, ...]] = ()  # names of the parameters with one row per token

    vocabulary: int  # V
    feature_width: int  # D of Step.features
    embedding: Embedding  # the token vectors; a frontend may share them
    map_shape: tuple[int, int] = (0, 0)  # layers and heads of Step.attention
    self_attention_shape: tuple[int, int] = (0, 0)  # layers and heads of ``self_attention``
    longest: int | None = None  # the most positions it can read; None: any number
    hard: bool = False  # attention reads a single position, through which no gradient flows

    @property
    def maps(self) -> int:
        """Return A of ``Step.attention``: its layers times its heads."""
        return self.map_shape[0] * self.map_shape[1]

    @classmethod
    def network_config(cls, config: Any) -> Any:
        """Return the settings of the network that does the work: its own, or of one inside it.

        They have a ``width``.
        """
        return config

    @classmethod
    def predicts_source(cls, config: Any) -> bool:
        """Return whether the loss counts the source's tokens too."""
        return False

    @abstractmethod
    def start(self, memory: Memory | None, sources: int) -> State:
        """Return the state before the first token, with one row per source."""

    @abstractmethod
    def forward(self, tokens: Tensor, state: State, need_attention: bool = False) -> Step:
        """Advance by ``tokens`` (N, T); N is a multiple of ``state.sources``."""

    def self_attention(self, tokens: Tensor, state: State) -> Tensor | None:
        """Return where each token looks back, (N, L, H, T, P), or None if there are no heads.

        P counts what it has read so far: tokens, and where ``reads_source`` the positions of the
        source before them.
        """
        return None

    def lower(self, program: Lowering, memory: LoweredMemory | None) -> LoweredStep:
        """Add the operations of ``start`` to ``encode``, then those of ``forward`` for one token.

        Between the two it calls ``program.begin_step()``. Law: the program computes what ``start``
        and ``forward`` do.
        """
        raise cannot_lower(self)


class ReadingDecoder(Decoder):
    """A decoder that can be the one network over source and target.

    As a language model, without a memory, it reads vectors too.

    Law: reading the vectors of tokens equals reading the tokens.
    """

    @abstractmethod
    def read(self, vectors: Padded, state: State) -> tuple[Tensor, State]:
        """Advance a language model by vectors (N, S, E) instead of tokens.

        The rows may have different lengths.
        Returns the features (N, S, D) after each vector, and the state after the last real vector
        of each row.
        """

    def lower(self, program: Lowering, memory: LoweredMemory | None, read: str | None = None) -> LoweredStep:
        """Add the operations as other decoders do; ``read`` (S, E) are vectors that it reads first."""
        raise cannot_lower(self)


@dataclass(frozen=True, slots=True)
class LoweredStep:
    """The names of the values that a ``Step`` has in a program."""

    logits: str  # (1, V)
    attention: tuple[str, ...] = ()  # (A_i, S) each; together they are the A maps


class Frontend(nn.Module):
    """The trained end of a modality: turns what ``Modality.collate`` returns into vectors.

    The vectors are (B, S, width), or (B, H, W, width). Built as
    ``Kind(**modality.frontend_options())``; the modality names its kind, the file in
    ``nn/frontends``.
    """

    token_tables: ClassVar[tuple[str, ...]] = ()  # names of the parameters with one row per token

    width: int

    @abstractmethod
    def forward(self, source: Padded) -> Padded:
        """Return the vectors of the source."""

    def lower(self, program: Lowering, name: str) -> str:
        """Add the source of this name and the operations of ``forward``; return the vectors (S, width)."""
        raise cannot_lower(self)

    @property
    def token_embedding(self) -> Embedding | None:
        """Return the table of token vectors, if there is one.

        It can be shared with the decoder's.
        """
        return None
