"""One network over the concatenated pair: ``source <sep> target </s>`` (Liu et al. 2018, section 4.2.3).

The network is any decoder without memory that can read vectors. ``start`` runs it over the source's vectors; the start
symbol, which every search feeds first, is the ``<sep>``; from there on it is a language model. The loss counts the
target tokens; ``source_loss`` adds the source's, so that the whole pair is modelled as one text.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, SerializeAsAny
from torch import Tensor

from dragoman.config import ConfigError, Section
from dragoman.contracts import Decoder, ReadingDecoder
from dragoman.nn.layers import Embedding
from dragoman.parts import kind_of, kinds, parse, part
from dragoman.types import Memory, Padded, Reading, State, Step


def _network(value: Any) -> Section:
    config: Section = parse("decoder", value, "rnn")
    kind = kind_of(config)
    if not issubclass(part("decoder", kind), ReadingDecoder):
        able = [name for name in kinds("decoder") if issubclass(part("decoder", name), ReadingDecoder)]
        raise ValueError(f"{kind!r} cannot be one network over source and target; choose from: {', '.join(able)}")
    return config


class Concat(Decoder):
    reference = "Liu et al. 2018, section 4.2.3"
    reads_source = True

    class Config(Section):
        network: Annotated[SerializeAsAny[Section], BeforeValidator(_network)] = Field(
            default={"kind": "rnn"}, validate_default=True
        )
        source_loss: float = Field(0.0, ge=0.0)  # weight of a source token in the loss; a target token has 1

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
        self.vocabulary, self.maps = vocabulary, 0
        self.source_loss = config.source_loss
        width = self.embedding.weight.shape[1]
        if memory_width not in (None, width):
            raise ConfigError(
                "one network reads the token vectors of both sides, so they must be of one width, but the source's "
                f"(source.embedding) is {memory_width} and the target's (of decoder.network) is {width}"
            )

    @property
    def embedding(self) -> Embedding:
        """Of the target tokens; the source's are the frontend's, or the same by ``share_embeddings``."""
        return self.network.embedding  # type: ignore[return-value]

    def start(self, memory: Memory | None, sources: int) -> State:
        state = self.network.start(None, sources)
        if memory is None:
            return state
        features, state = self.network.read(Padded(memory.states, memory.mask), state)
        counts = self.training and self.source_loss > 0
        return State(sources, {"read": features} if counts else {}, state.carry)

    def forward(self, tokens: Tensor, state: State, need_attention: bool = False) -> Step:
        fixed: Any = state.fixed
        step = self.network(tokens, State(state.sources, {}, state.carry))
        reading = Reading(fixed["read"], self.source_loss) if "read" in fixed else None
        return Step(step.features, step.readout, State(state.sources, fixed, step.state.carry), reading=reading)

    def self_attention(self, tokens: Tensor, state: State) -> Tensor | None:
        return self.network.self_attention(tokens, State(state.sources, {}, state.carry))
