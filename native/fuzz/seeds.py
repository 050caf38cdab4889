"""Write the model files and tokeniser tables that the fuzzer changes: every operation, every kind of tokeniser.

python native/fuzz/seeds.py FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from dragoman.data.tokenizers import TokenizerConfig, fit, kinds
from dragoman.export.tokenizer_table import tokenizer_table
from dragoman.program.build import Builder
from dragoman.program.file import Section, write_program
from dragoman.program.table import Program, Source
from dragoman.runtime.settings import pack_runs

VOCABULARY, HEADS, EOS = 24, 2, 3
TEXTS = [
    "the cat sat on the mat, and the dogs saw it; 12.5 % of them ran.",
    "Élan vital à Noël: cœur, e\u0301lan q\u0323\u0307 한국어 \u1112\u1161\u11ab",
    "हिन्दी 日本語の文 ▁ \ufdd0 😀 </s> <0x41>",
] * 8


class Maker(Builder):
    """A builder that makes up weights. ``width``: of most values; products of bytes need 64 or more."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.random, self.width = np.random.default_rng(width), width

    def make(self, *shape: int) -> str:
        """Add a weight and return its name."""
        return self.weight(f"weight {len(self._weights)}", (self.random.normal(size=shape) * 0.3).astype(np.float32))

    def linear(self, x: str, inputs: int, outputs: int = 0, activation: str = "none") -> str:
        """Add a linear operation with a bias."""
        size = outputs or self.width
        return self.add("linear", x, weights=(self.make(size, inputs), self.make(size)), activation=activation)

    def norm(self, x: str) -> str:
        """Add a layer norm."""
        return self.add("layer_norm", x, weights=(self.make(self.width), self.make(self.width)))

    def embed(self, tokens: str) -> str:
        """Embed the tokens of a source, or the last one."""
        return self.add("embed", tokens, weights=(self.make(VOCABULARY, self.width),), scale=2.0)

    def read(self, name: str = "x") -> str:
        """Add a text source and embed it."""
        return self.embed(self.source(Source(name, "tokens", VOCABULARY)))

    def recur(self, x: str, *state: str, cell: str = "lstm", reverse: int = 0) -> tuple[str, ...]:
        """Add a recurrent layer."""
        gates = {"lstm": 4, "gru": 3}.get(cell, 1) * self.width
        weights = [self.make(gates, self.width), self.make(gates, self.width), self.make(gates)]
        weights += [self.make(self.width)] if cell == "gru" else []
        return self.add_all("recurrent", x, *state, weights=weights, cell=cell, reverse=reverse)

    def attend(self, y: str, states: str) -> tuple[str, str]:
        """Attend to source states with several heads."""
        context, weights = self.add_all("cross_attention", y, states, states, heads=HEADS, scale=0.3)
        return self.add("add", y, context), weights

    def close(self, y: str, inputs: int, attention: list[str]) -> Program:
        """Finish with an output layer that ends now and then."""
        bias = self.random.normal(size=VOCABULARY).astype(np.float32)
        bias[EOS] += 2
        weights = (self.make(VOCABULARY, inputs), self.weight("bias", bias))
        return self.finish(VOCABULARY, self.add("linear", y, weights=weights), attention)

    def cached(self, y: str, begin: tuple[str, str] = ("", "")) -> str:
        """Attend to the tokens before."""
        y, key, value = self.add_all(
            "cached_attention", self.linear(y, self.width, 3 * self.width), "k", "v", heads=HEADS
        )
        self.slot("k", self.width, 0, begin[0], key, grows=True)
        self.slot("v", self.width, 0, begin[1], value, grows=True)
        return y


def make_attentive(width: int) -> Program:
    """A Transformer with learned and rotary positions."""
    maker = Maker(width)
    x = maker.add("positions", maker.read(), weights=(maker.make(40, width),))
    turned = maker.add("rotate", maker.linear(x, width, 3 * width), heads=HEADS)
    x = maker.norm(maker.add("self_attention", turned, heads=HEADS, causal=1))
    maker.states = x
    maker.summary = maker.add("mean", x)
    keys = maker.fix(maker.linear(x, width))
    maker.begin_step()
    y = maker.cached(maker.add("positions", maker.embed("token")))
    y, weights = maker.attend(maker.norm(y), keys)
    return maker.close(maker.linear(y, width, 2 * width, "glu"), width, [weights])


def make_recurrent(width: int) -> Program:
    """Recurrent layers of every cell, and attention that remembers where it looked."""
    maker = Maker(width)
    x, *_ = maker.recur(maker.read(), cell="gru", reverse=1)
    x, *_ = maker.recur(maker.recur(x, cell="relu")[0], cell="tanh")
    x, hidden, cell = maker.recur(x)
    maker.states = x
    states, keys = maker.fix(x), maker.fix(maker.linear(x, width, activation="tanh"))
    nowhere = maker.add("zeros", x)
    maker.begin_step()
    y, *after = maker.recur(maker.embed("token"), "h", "c")
    located = maker.add("locate", "w", keys, weights=(maker.make(3, 5), maker.make(width, 3)))
    scores = maker.add("additive_scores", maker.linear(y, width), located, weights=(maker.make(width),))
    weights = maker.add("softmax", scores)
    maker.slot("h", width, 1, hidden, after[0])
    maker.slot("c", width, 1, cell, after[1])
    maker.slot("w", 0, 1, nowhere, weights)
    context = maker.add("weighted_sum", weights, states)
    gate = maker.linear(y, width, 1, "sigmoid")
    joined = maker.add("join", maker.add("normalize", y), maker.add("multiply", context, gate), axis="columns")
    return maker.close(joined, 2 * width, [weights])


def make_convolutional(width: int) -> Program:
    """A gated convolution over the last tokens, and hard attention."""
    maker = Maker(width)
    x = maker.add(
        "convolve", maker.read(), weights=(maker.make(2 * width, 3, width),), before=1, after=1, activation="glu"
    )
    maker.states = x
    keys = maker.fix(
        maker.add("affine", x, weights=(maker.make(width), maker.make(width)), factor=0.5, activation="tanh")
    )
    maker.begin_step()
    window = maker.add("join", "past", maker.embed("token"), axis="rows")
    maker.slot("past", width, 2, "", maker.add("slice", window, axis="rows", begin=-2, count=2))
    y = maker.add("convolve", window, weights=(maker.make(width, 3, width), maker.make(width)), activation="relu")
    weights = maker.add("select_best", maker.add("dot_scores", y, keys, scale=0.2))
    context = maker.add("weighted_sum", weights, keys)
    half = maker.add("slice", maker.add("add", y, context, factor=0.7), axis="columns", begin=1, count=width // 2)
    return maker.close(half, width // 2, [weights])


def make_prefixed(width: int) -> Program:
    """A decoder that has read the source as a beginning."""
    maker = Maker(width)
    x = maker.add("positions", maker.read())
    maker.begin = x
    first = maker.linear(x, width), maker.linear(x, width)
    maker.begin_step()
    return maker.close(maker.cached(maker.add("positions", maker.embed("token")), first), width, [])


def make_picture(width: int) -> Program:
    """An encoder of pictures."""
    maker = Maker(width)
    x = maker.source(Source("picture", "picture", 3))
    x = maker.add(
        "convolve_picture", x, weights=(maker.make(width, 3, 3, 3), maker.make(width)), before=1, activation="relu"
    )
    x = maker.add("group_norm", x, weights=(maker.make(width), maker.make(width)), groups=2)
    x = maker.add("max_pool", maker.add("add", x, maker.linear(x, width)))
    x = maker.add("grid", x, weights=(maker.make(2, 12, width // 2),), vectors="learned")
    maker.states = x
    states = maker.fix(x)
    maker.begin_step()
    y, weights = maker.attend(maker.cached(maker.embed("token")), states)
    return maker.close(y, width, [weights])


def make_frames(width: int) -> Program:
    """An encoder of frames that shortens them, with CTC."""
    maker = Maker(width)
    x = maker.source(Source("frames", "frames", 5))
    x = maker.linear(maker.add("pair", x), 10, width)
    x = maker.add("convolve", x, weights=(maker.make(width, 3, width),), stride=2, before=1, after=1)
    maker.states = x
    maker.ctc = maker.linear(x, width, VOCABULARY)
    states, last = maker.fix(x), maker.add("slice", x, axis="rows", begin=-1, count=1)
    maker.begin_step()
    y, hidden = maker.recur(maker.embed("token"), "h", cell="gru")[:2]
    maker.slot("h", width, 1, last, hidden)
    y, weights = maker.attend(y, states)
    return maker.close(y, width, [weights])


def make_several(width: int) -> Program:
    """Two texts and a picture; one text is read by sentences."""
    maker = Maker(width)
    words = maker.source(Source("a", "tokens", VOCABULARY))
    ends = maker.weight("ends", (np.arange(VOCABULARY) % 5 == 0).astype(np.float32))
    sentences = maker.add("pool_sentences", maker.embed(words), words, weights=(ends,))
    grid = maker.add("grid", maker.linear(maker.source(Source("b", "picture", 1)), 1, width), vectors="sinusoidal")
    plain = maker.add("grid", maker.linear("b", 1, width), vectors="none")
    x = maker.add("join", sentences, maker.read("c"), grid, plain, axis="rows")
    maker.states = x
    states = maker.fix(x)
    average = maker.fix(maker.add("mean", x))
    maker.begin_step()
    y, weights = maker.attend(maker.add("add", maker.cached(maker.embed("token")), average), states)
    y, more = maker.attend(y, states)
    return maker.close(y, width, [weights, more])


def make_language_model(width: int) -> Program:
    """A decoder without a source."""
    maker = Maker(width)
    maker.begin_step()
    y, hidden = maker.recur(maker.embed("token"), "h", cell="tanh")[:2]
    maker.slot("h", width, 1, "", hidden)
    return maker.close(maker.norm(y), width, [])


PROGRAMS: dict[str, Callable[[int], Program]] = {
    "attentive": make_attentive,
    "recurrent": make_recurrent,
    "convolutional": make_convolutional,
    "prefixed": make_prefixed,
    "picture": make_picture,
    "frames": make_frames,
    "several": make_several,
    "language-model": make_language_model,
}


def make_tables() -> dict[str, bytes]:
    """Return a table for each kind of tokeniser."""
    tables = {}
    for kind in kinds():
        for model in ("bpe", "unigram") if kind == "subwords" else ("",):
            for normalize in ("none", "nfc"):
                given = {"model": model, "size": 330} if model else {}
                config = TokenizerConfig(kind=kind, normalize=normalize, **given)
                tables["-".join(filter(None, (kind, model, normalize)))] = tokenizer_table(fit(config, TEXTS))
    return tables


def main(folder: Path, widths: Sequence[int] = (8, 72)) -> None:
    """Write all files. ``widths``: of the models."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = make_tables()
    for name, content in tables.items():
        (folder / f"{name}.table").write_bytes(content)
    more = [
        Section("tokenizer", next(iter(tables.values()))),
        Section("settings", np.arange(20, dtype="<f8").tobytes()),
        Section("forbidden", np.array(pack_runs([(1,), (4, 5)]), "<i4").tobytes()),
        Section("about", b"{}"),
    ]
    for name, make in PROGRAMS.items():
        for width in widths:
            for int8 in (False, True):
                content = write_program(make(width), int8=int8, more=more if width == 8 else ())
                (folder / f"{name}-{width}-{'int8' if int8 else 'float32'}.dragoman").write_bytes(content)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
