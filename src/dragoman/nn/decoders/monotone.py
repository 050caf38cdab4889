"""Recurrent decoder with exact hard monotone attention (Wu & Cotterell 2019).

Each token is aligned to one source position a_t, and positions never go back. All alignments are
summed over by the forward algorithm, so the probabilities are exact and nothing is sampled:

    P(a_t | a_{t-1}) ∝ exp(score(s_t, h_{a_t}) + jump(a_t - a_{t-1}))     for a_t >= a_{t-1}, otherwise 0
    P(y_t | y_<t) = Σ_a P(a_t = a | y_<t) P(y_t | s_t, h_a)
    P(a_t = a | y_<=t) ∝ P(a_t = a | y_<t) P(y_t | s_t, h_a)

order = 0 has no jump term; order = 1 learns one for each distance up to ``longest_jump`` and one for
all that are longer. The attention returned is P(a_t | y_<t). The state s_t reads tokens alone, never
a context, which is what makes the sum exact.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import BeforeValidator, Field, SerializeAsAny
from torch import Tensor, nn

from dragoman.config import ConfigError, Section
from dragoman.nn.blocks.layers import Dropout, Embedding, InferenceLinear
from dragoman.nn.blocks.recurrent import Cell, RecurrentStack
from dragoman.nn.contracts import Attention, Decoder
from dragoman.parts import kind_of, parse, part
from dragoman.types import Memory, State, Step

AttentionConfig = Annotated[SerializeAsAny[Section], BeforeValidator(lambda value: parse("attention", value))]

NEVER = -1e30  # log-probability of what cannot be; finite, so that differences of two are no nan
SMALLEST = 1e-30  # keeps the logarithm of a weight finite


class Monotone(Decoder):
    """A stack of recurrent layers whose outputs are aligned to source positions in order."""

    reference = "Wu & Cotterell 2019"
    has_bounded_state = True
    token_tables = ("embedding.weight", "project.weight", "project.bias")

    class Config(Section):
        cell: Cell = "lstm"
        width: int = Field(256, gt=0)
        layers: int = Field(1, gt=0)
        embedding: int = Field(128, gt=0)
        """Width of a token's vector."""
        attention: AttentionConfig = Field(default={"kind": "additive"}, validate_default=True)
        order: Literal[0, 1] = 1
        """1: how far an alignment moves is learnt too."""
        longest_jump: int = Field(8, ge=1)
        """With order = 1, distances from this on are learnt as one."""
        tie_embeddings: bool = True
        """Use the token vectors as the output layer's weights."""
        dropout: float = Field(0.0, ge=0.0, lt=1.0)
        """Dropout on token vectors, between layers and before the output layer."""

    def __init__(
        self,
        config: Config,
        *,
        vocabulary: int,
        memory_width: int | None,
        summary_shape: tuple[int, int, int] | None,
    ) -> None:
        super().__init__()
        self.vocabulary, self.width = vocabulary, config.width
        self.embedding = Embedding(vocabulary, config.embedding, config.dropout)
        self.dropout = Dropout(config.dropout)
        self.stack = RecurrentStack(config.cell, config.embedding, config.width, config.layers, config.dropout)
        hidden = config.embedding if config.tie_embeddings else config.width
        self.from_state = nn.Linear(config.width, hidden)
        self.project = InferenceLinear(hidden, vocabulary)
        if config.tie_embeddings:
            self.project.weight = self.embedding.weight
        nn.init.zeros_(self.project.bias)
        self.attention: Attention | None = None
        self.bridge: nn.Linear | None = None
        self.jumps: nn.Parameter | None = None
        self.feature_width = hidden
        if memory_width is None:
            return
        build = part("attention", kind_of(config.attention))
        if build.recurrent:
            raise ConfigError(
                f"decoder.attention.kind = {kind_of(config.attention)!r} sees the weights of the last step, but a "
                "monotone decoder sums over all alignments; use another score"
            )
        self.attention = build(config.attention, query_width=config.width, memory_width=memory_width)
        self.map_shape = (1, 1)
        self.feature_width = vocabulary  # its features are log-probabilities
        self.from_source = nn.Linear(memory_width, hidden, bias=False)
        if config.order == 1:
            self.jumps = nn.Parameter(torch.zeros(config.longest_jump + 1))
        if summary_shape is not None:
            layers, parts, width = summary_shape
            size = self.stack.depth * self.stack.parts * config.width
            self.bridge = nn.Linear(layers * parts * width, size)

    def start(self, memory: Memory | None, sources: int) -> State:
        """Return the first state, before the first source position."""
        shape = (sources, self.stack.depth, self.stack.parts, self.width)
        hidden = self.project.weight.new_zeros(shape)
        if memory is None or self.attention is None:
            return State(sources, {}, {"hidden": hidden})
        if self.bridge is not None and memory.summary is not None:
            hidden = torch.tanh(self.bridge(memory.summary.flatten(1))).view(shape)
        values = memory.states if memory.values is None else memory.values
        fixed: dict[str, Any] = {
            "scores": self.attention.prepare(memory),
            "source": self.from_source(values),  # (B, S, F)
            "mask": memory.mask,
        }
        prior = hidden.new_full(memory.mask.shape, NEVER)
        prior[:, 0] = 0.0
        emitted = hidden.new_zeros(*prior.shape, self.vocabulary)
        return State(sources, fixed, {"hidden": hidden, "prior": prior, "emitted": emitted})

    def forward(self, tokens: Tensor, state: State, need_attention: bool = False) -> Step:
        """Advance by ``tokens`` (N, T)."""
        fixed: Any = state.fixed
        carry: Any = state.carry
        outputs, hidden = self.stack(self.embedding(tokens), carry["hidden"])  # (N, T, H)
        own = self.from_state(outputs)  # (N, T, F)
        if self.attention is None:
            after = State(state.sources, fixed, {"hidden": hidden})
            return Step(self.dropout(torch.tanh(own)), self.project, after)
        each = len(tokens) // state.sources
        source = fixed["source"].repeat_interleave(each, 0)[:, None]  # (N, 1, S, F)
        features = self.dropout(torch.tanh(own[:, :, None] + source))
        emissions = self.project(features).float().log_softmax(-1)  # (N, T, S, V)
        moves = self._moves(outputs, fixed, state.sources, each)  # (N, T, S, S)
        prior, emitted = carry["prior"], carry["emitted"]
        log_probs, priors = [], []
        for t in range(tokens.shape[1]):
            token = tokens[:, t, None, None].expand(-1, emitted.shape[1], 1)
            posterior = prior + emitted.gather(2, token)[..., 0]
            posterior = posterior.log_softmax(-1).clamp_min(NEVER)  # P(a | y up to this token)
            prior = torch.logsumexp(posterior[:, :, None] + moves[:, t], 1)  # (N, S)
            emitted = emissions[:, t]
            log_probs.append(torch.logsumexp(prior[:, :, None] + emitted, 1))
            priors.append(prior)
        attention = torch.stack(priors, 1).exp()[:, :, None] if need_attention else None  # (N, T, 1, S)
        after = State(state.sources, fixed, {"hidden": hidden, "prior": prior, "emitted": emitted})
        return Step(torch.stack(log_probs, 1), _copy, after, attention)

    def _moves(self, outputs: Tensor, fixed: Any, sources: int, each: int) -> Tensor:
        """Return the log-probability of each position after each other one, (N, T, S before, S after)."""
        assert self.attention is not None
        weights = self.attention.weigh(outputs.reshape(sources, -1, self.width), fixed["scores"])  # (B, k * T, 1, S)
        scores = weights.float().clamp_min(SMALLEST).log().view(*outputs.shape[:2], 1, -1)  # (N, T, 1, S)
        positions = torch.arange(scores.shape[-1], device=scores.device)
        distance = positions - positions[:, None]  # (S before, S after)
        if self.jumps is not None:
            scores = scores + self.jumps[distance.clamp(0, len(self.jumps) - 1)]
        mask = fixed["mask"].repeat_interleave(each, 0)[:, None, None]  # (N, 1, 1, S)
        return scores.masked_fill((distance < 0) | ~mask, NEVER).log_softmax(-1).clamp_min(NEVER)


def _copy(features: Tensor) -> Tensor:
    """Return a copy of the features, which are log-probabilities already: a search changes what it gets."""
    return features.clone()
