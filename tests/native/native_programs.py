"""Small programs with random weights, one for each way in which a decoder keeps its state."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dragoman.program.build import Builder
from dragoman.program.table import Program, Source

VOCABULARY, WIDTH, HEADS = 97, 36, 3
BOS, EOS = 2, 3


class ProgramMaker(Builder):
    """A builder that makes up weights."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = np.random.default_rng(seed)

    def make_weight(self, name: str, *shape: int) -> str:
        return self.weight(name, (self.random.normal(size=shape) * 0.3).astype(np.float32))

    def linear(self, x: str, name: str, outputs: int, inputs: int, activation: str = "none") -> str:
        return self.add("linear", x, weights=(self.make_weight(name, outputs, inputs),), activation=activation)

    def embed(self, tokens: str) -> str:
        return self.add("embed", tokens, weights=(self.make_weight(f"table {tokens}", VOCABULARY, WIDTH),), scale=2.0)

    def gates(self, name: str, inputs: int) -> tuple[str, str, str]:
        sizes = {"in": (4 * WIDTH, inputs), "own": (4 * WIDTH, WIDTH), "bias": (4 * WIDTH,)}
        first, second, third = (self.make_weight(f"{name} {part}", *size) for part, size in sizes.items())
        return first, second, third

    def predict(self, y: str, inputs: int, attention: list[str]) -> Program:
        """Finish with an output layer that ends now and then."""
        bias = (self.random.normal(size=VOCABULARY) * 0.5).astype(np.float32)
        bias[EOS] += 2.5
        weights = (self.make_weight("out", VOCABULARY, inputs), self.weight("out bias", bias))
        return self.finish(VOCABULARY, self.add("linear", y, weights=weights), attention)


def make_attentive() -> Program:
    """Self-attention with caches, and attention to the source with several heads."""
    maker = ProgramMaker(1)
    x = maker.embed(maker.source(Source("x", "tokens", VOCABULARY)))
    x = maker.add("self_attention", maker.linear(maker.add("positions", x), "qkv", 3 * WIDTH, WIDTH), heads=HEADS)
    maker.states = x
    keys, values = maker.fix(maker.linear(x, "keys", WIDTH, WIDTH)), maker.fix(maker.linear(x, "values", WIDTH, WIDTH))
    maker.begin_step()
    y = maker.add("positions", maker.embed("token"))
    y, key, value = maker.add_all("cached_attention", maker.linear(y, "past", 3 * WIDTH, WIDTH), "k", "v", heads=HEADS)
    maker.slot("k", WIDTH, 0, "", key, grows=True)
    maker.slot("v", WIDTH, 0, "", value, grows=True)
    context, weights = maker.add_all("cross_attention", y, keys, values, heads=HEADS, scale=0.3)
    return maker.predict(maker.linear(maker.add("add", y, context), "inner", WIDTH, WIDTH, "relu"), WIDTH, [weights])


def make_recurrent() -> Program:
    """An LSTM, and attention that remembers where it looked."""
    maker = ProgramMaker(2)
    x = maker.embed(maker.source(Source("x", "tokens", VOCABULARY)))
    x, hidden, cell = maker.add_all("recurrent", x, weights=maker.gates("encoder", WIDTH))
    maker.states = x
    states, keys = maker.fix(x), maker.fix(maker.linear(x, "keys", WIDTH, WIDTH))
    nowhere = maker.add("zeros", x)
    maker.begin_step()
    y, *after = maker.add_all("recurrent", maker.embed("token"), "h", "c", weights=maker.gates("decoder", WIDTH))
    place = maker.make_weight("filters", 4, 5), maker.make_weight("place", WIDTH, 4)
    located = maker.add("locate", "w", keys, weights=place)
    query = maker.linear(y, "query", WIDTH, WIDTH)
    scores = maker.add("additive_scores", query, located, weights=(maker.make_weight("vector", WIDTH),))
    weights = maker.add("softmax", scores)
    maker.slot("h", WIDTH, 1, hidden, after[0])
    maker.slot("c", WIDTH, 1, cell, after[1])
    maker.slot("w", 0, 1, nowhere, weights)
    context = maker.add("weighted_sum", weights, states)
    return maker.predict(maker.add("join", y, context, axis="columns"), 2 * WIDTH, [weights])


def make_convolutional() -> Program:
    """A gated convolution over the last tokens."""
    maker = ProgramMaker(3)
    x = maker.embed(maker.source(Source("x", "tokens", VOCABULARY)))
    maker.states = x
    keys = maker.fix(maker.linear(x, "keys", WIDTH, WIDTH))
    maker.begin_step()
    window = maker.add("join", "past", maker.embed("token"), axis="rows")
    maker.slot("past", WIDTH, 2, "", maker.add("slice", window, axis="rows", begin=1, count=2))
    filters = (maker.make_weight("filters", 2 * WIDTH, 3, WIDTH),)
    y = maker.add("convolve", window, weights=filters, activation="glu")
    scores = maker.add("dot_scores", y, keys, scale=0.2)
    weights = maker.add("softmax", scores)
    context = maker.add("weighted_sum", weights, keys)
    return maker.predict(maker.add("add", y, context), WIDTH, [weights])


def make_prefixed() -> Program:
    """A decoder that has read the source as a beginning: caches begin with its keys and values."""
    maker = ProgramMaker(4)
    x = maker.add("positions", maker.embed(maker.source(Source("x", "tokens", VOCABULARY))))
    maker.begin = x
    first_keys, first_values = maker.linear(x, "keys", WIDTH, WIDTH), maker.linear(x, "values", WIDTH, WIDTH)
    maker.begin_step()
    y = maker.add("positions", maker.embed("token"))
    y, key, value = maker.add_all("cached_attention", maker.linear(y, "past", 3 * WIDTH, WIDTH), "k", "v", heads=HEADS)
    maker.slot("k", WIDTH, 0, first_keys, key, grows=True)
    maker.slot("v", WIDTH, 0, first_values, value, grows=True)
    return maker.predict(y, WIDTH, [])


PROGRAMS: dict[str, Callable[[], Program]] = {
    "attentive": make_attentive,
    "recurrent": make_recurrent,
    "convolutional": make_convolutional,
    "prefixed": make_prefixed,
}


def make_sources(count: int, longest: int = 20) -> list[dict[str, np.ndarray]]:
    """Random texts of different lengths."""
    random = np.random.default_rng(5)
    return [{"x": random.integers(0, VOCABULARY, size=random.integers(1, longest))} for _ in range(count)]
