"""One network over the pair as one text: ``source <sep> target </s>`` (Liu et al. 2018, 4.2.3).

The network is any decoder that can read vectors without a memory. ``start`` runs it over the
source's vectors. The start symbol, which every search feeds first, is the ``<sep>``; from there on
the network is a language model. The loss counts the target tokens; ``source_loss`` adds those of
the source, so that the whole pair is modelled as one text.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SerializeAsAny
from torch import Tensor

from dragoman.config import ConfigError, Section
from dragoman.nn.blocks.layers import Embedding
from dragoman.nn.contracts import Decoder, LoweredStep, ReadingDecoder
from dragoman.nn.lowering import LoweredMemory, Lowering
from dragoman.parts import kind_of, kinds, parse, part
from dragoman.types import Memory, Padded, Reading, State, Step


def _network(value: Any) -> Section:
    config: Section = parse("decoder", value, "rnn")
    kind = kind_of(config)
    if not issubclass(part("decoder", kind), ReadingDecoder):
        readers = [name for name in kinds("decoder") if issubclass(part("decoder", name), ReadingDecoder)]
        raise ValueError(f"{kind!r} cannot be one network over source and target; choose from: {', '.join(readers)}")
    return config


class Concat(Decoder):
    """One network that reads source and target as one sequence."""

    reference = "Liu et al. 2018, section 4.2.3"
    reads_source = True

    class Config(Section):
        network: Annotated[SerializeAsAny[Section], BeforeValidator(_network)] = Field(
            default={"kind": "rnn"}, validate_default=True
        )
        """The decoder that reads source and target as one sequence."""
        source_loss: float = Field(0.0, ge=0.0)
        """Weight of a source token in the loss. A target token has weight 1."""

    def __init__(
        self,
        config: Config,
        *,
        vocabulary: int,
        memory_width: int | None,
        summary_shape: tuple[int, int, int] | None,
    ) -> None:
        super().__init__()
        build = part("decoder", kind_of(config.network))
        self.network: ReadingDecoder = build(
            config.network, vocabulary=vocabulary, memory_width=None, summary_shape=None
        )
        self.vocabulary = vocabulary
        self.self_attention_shape, self.longest = self.network.self_attention_shape, self.network.longest
        self.feature_width = self.network.feature_width
        self.source_loss = config.source_loss
        width = self.embedding.weight.shape[1]
        if memory_width not in (None, width):
            raise ConfigError(
                "one network reads the token vectors of both sides, so they must be of one width, but the source's "
                f"(source.embedding) is {memory_width} and the target's (of decoder.network) is {width}"
            )

    @classmethod
    def network_config(cls, config: Config) -> Section:
        """Return the settings of the network inside."""
        return config.network

    @classmethod
    def predicts_source(cls, config: Config) -> bool:
        """Return whether the loss counts the source's tokens too."""
        return config.source_loss > 0

    @property
    def embedding(self) -> Embedding:  # type: ignore[override]  # an attribute would give it a second weight name
        """Return the network's token vectors; the source may share them (``share_embeddings``)."""
        return self.network.embedding

    def start(self, memory: Memory | None, sources: int) -> State:
        """Return the network's state after it has read the source."""
        state = self.network.start(None, sources)
        if memory is None:
            return state
        features, state = self.network.read(Padded(memory.states, memory.mask), state)
        counts = self.training and self.source_loss > 0
        return replace(state, fixed={"read": features} if counts else {})

    def forward(self, tokens: Tensor, state: State, need_attention: bool = False) -> Step:
        """Advance the network by ``tokens`` (N, T).

        There is no attention to the source to return.
        """
        fixed: Any = state.fixed
        step = self.network(tokens, replace(state, fixed={}))
        reading = Reading(fixed["read"], self.source_loss) if "read" in fixed else None
        return Step(step.features, step.readout, replace(step.state, fixed=fixed), reading=reading)

    def self_attention(self, tokens: Tensor, state: State) -> Tensor | None:
        """Return where each token looks back, at the source's positions too."""
        return self.network.self_attention(tokens, replace(state, fixed={}))

    def lower(self, program: Lowering, memory: LoweredMemory | None) -> LoweredStep:
        return self.network.lower(program, None, None if memory is None else memory.states)
