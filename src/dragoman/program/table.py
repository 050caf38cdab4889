"""The operations of programs, and the records that a program is made of.

A program says how *one source* is encoded and how *one hypothesis* advances by one token. It has no
batch axis and no padding. An interpreter batches as it likes, because a law of every part says that
the rest of a batch is invisible. There is no control flow and no dropout.

In ``encode`` a value is float32 (rows, width), where the rows are positions of the source; or a
picture (H, W, C); or the token ids (S,) of a text. In ``step`` a value is float32 (rows, width) of
one hypothesis, nearly always of one row. Attention weights are (A, S): S is the number of source
states.

The table is closed. The numbers of the kinds and the order of their settings are part of the file
format (``VERSION``): new kinds are added at the end, and nothing is renumbered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import numpy as np

VERSION: Final = 1

SettingValue: TypeAlias = "int | float | str"
ACTIVATIONS: Final = ("none", "relu", "tanh", "sigmoid", "glu")
AXES: Final = ("rows", "columns")
CELLS: Final = ("lstm", "gru", "tanh", "relu")
GRIDS: Final = ("none", "sinusoidal", "learned")


@dataclass(frozen=True, slots=True)
class Setting:
    """A number, or one of a few words, that an operation is configured by."""

    name: str
    kind: Literal["int", "float", "word"]
    default: SettingValue
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kind:
    """What operations of one kind read and compute.

    A name that ends in "?" may be absent: the operation then has "" in its place. "*" stands for
    two or more inputs.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: tuple[str, ...]
    settings: tuple[Setting, ...]
    meaning: str


def _activation() -> Setting:
    return Setting("activation", "word", "none", ACTIVATIONS)


def _axis() -> Setting:
    return Setting("axis", "word", "rows", AXES)


def _int(name: str, default: int) -> Setting:
    return Setting(name, "int", default)


def _float(name: str, default: float) -> Setting:
    return Setting(name, "float", default)


_EPSILON = _float("epsilon", 1e-5)

# The position in this table is the number of the kind in files.
OPERATIONS: Final[dict[str, Kind]] = {
    "embed": Kind(
        ("tokens",), ("y",), ("table",), (_float("scale", 1.0),),
        "y (S, D) is the row of table (V, D) of each token, times scale.",
    ),
    "pool_sentences": Kind(
        ("vectors", "tokens"), ("y",), ("ends",), (),
        "y (S, D) sums the vectors (T, D) of each sentence. ends (V) is 1 for tokens that end a sentence. "
        "The word j of J has weight (1 - j / J) - (k / D) (1 - 2 j / J) in dimension k, j and k from 1.",
    ),
    "linear": Kind(
        ("x",), ("y",), ("weight", "bias?"), (_activation(),),
        "y (n, O) = x (n, I) times the transpose of weight (O, I), plus bias (O).",
    ),
    "affine": Kind(
        ("x",), ("y",), ("scale?", "shift?"), (_float("factor", 1.0), _activation()),
        "y = x * factor * scale + shift, where scale and shift (D) go with the last axis of x.",
    ),
    "add": Kind(
        ("a", "b"), ("y",), (), (_float("factor", 1.0), _activation()),
        "y = (a + b) * factor, elementwise.",
    ),
    "multiply": Kind(
        ("a", "b"), ("y",), (), (),
        "y = a (n, D) * b, elementwise; b is (n, D) or (n, 1).",
    ),
    "layer_norm": Kind(
        ("x",), ("y",), ("weight", "bias"), (_EPSILON,),
        "Each row of x (n, D) is normalised to mean 0 and variance 1, times weight, plus bias.",
    ),
    "group_norm": Kind(
        ("x",), ("y",), ("weight", "bias"), (_int("groups", 1), _EPSILON),
        "A picture x (H, W, C) is normalised over H, W and the channels of each group.",
    ),
    "positions": Kind(
        ("x",), ("y",), ("table?",), (),
        "y = x (n, D) plus the vectors of positions p, p + 1, …: rows of table (M, D), or without one "
        "sin(p r_i), cos(p r_i) side by side with r_i = exp(-2 i ln(10000) / D). p is 0 in encode; in step it counts "
        "the tokens read before, and the rows of the value that the program names as its beginning.",
    ),
    "grid": Kind(
        ("x",), ("y",), ("table?",), (Setting("vectors", "word", "none", GRIDS),),
        "A picture x (H, W, C) plus position vectors, of which the first half tells the row and the second half the "
        "column, as y (H * W, C) in reading order. learned: table (2, M, C / 2), rows first.",
    ),
    "self_attention": Kind(
        ("qkv",), ("y",), (), (_int("heads", 1), _int("causal", 0)),
        "Scaled dot-product attention of all positions to each other; qkv (S, 3 D) has queries, keys and values side "
        "by side. causal: a position sees itself and what is before it.",
    ),
    "cached_attention": Kind(
        ("qkv", "keys", "values"), ("y", "key", "value"), (), (_int("heads", 1),),
        "Scaled dot-product attention of the newest position, qkv (1, 3 D), to itself and to the P positions before "
        "it, keys and values (P, D). key and value (1, D) are its own, to be appended.",
    ),
    "cross_attention": Kind(
        ("query", "keys", "values"), ("y", "weights"), (), (_int("heads", 1), _float("scale", 1.0)),
        "Attention of query (1, D) to keys (S, D): weights (heads, S) = softmax(scale q · k), y (1, E) sums values "
        "(S, E) by them, each head its own columns.",
    ),
    "dot_scores": Kind(
        ("query", "keys"), ("y",), (), (_float("scale", 1.0),),
        "y (1, S) = scale * query (1, D) · keys (S, D).",
    ),
    "additive_scores": Kind(
        ("query", "keys"), ("y",), ("vector",), (),
        "y (1, S) = vector (K) · tanh(query (1, K) + keys (S, K)).",
    ),
    "locate": Kind(
        ("previous", "keys"), ("y",), ("filters", "place"), (),
        "y (S, K) = keys (S, K) + f times the transpose of place (K, F), where f (S, F) is the previous weights (1, S) "
        "convolved with filters (F, k), with k // 2 zeros at either end.",
    ),
    "softmax": Kind(("x",), ("y",), (), (), "The softmax of each row."),
    "select_best": Kind(("x",), ("y",), (), (), "1 at the first greatest of each row, otherwise 0."),
    "weighted_sum": Kind(
        ("weights", "values"), ("y",), (), (),
        "y (1, D) = weights (1, S) times values (S, D).",
    ),
    "normalize": Kind(("x",), ("y",), (), (), "Each row divided by its length, or by 1e-12 if that is greater."),
    "recurrent": Kind(
        ("x", "hidden?", "cell?"), ("y", "hidden", "cell?"), ("input", "recurrent", "bias", "new_bias?"),
        (Setting("cell", "word", "lstm", CELLS), _int("reverse", 0)),
        "A recurrent layer over x (S, I), from the given state (1, H) or zeros: outputs y (S, H) and the last state. "
        "input (G H, I), recurrent (G H, H), bias (G H). lstm: gates i, f, g, o. gru: r, z, n with "
        "n = tanh(input part + r * (recurrent part + new_bias (H))). reverse: from the last row to the first; outputs "
        "stay at their rows.",
    ),
    "join": Kind(("*",), ("y",), (), (_axis(),), "The inputs below each other (rows) or side by side (columns)."),
    "slice": Kind(
        ("x",), ("y",), (), (_axis(), _int("begin", 0), _int("count", 1)),
        "count rows or columns from begin on; a negative begin counts from the end.",
    ),
    "convolve": Kind(
        ("x",), ("y",), ("weight", "bias?"),
        (_int("stride", 1), _int("before", 0), _int("after", 0), _activation()),
        "A convolution over the rows of x (S, I), with zeros before and after; weight (O, k, I).",
    ),
    "convolve_picture": Kind(
        ("x",), ("y",), ("weight", "bias?"), (_int("stride", 1), _int("before", 0), _activation()),
        "A convolution over a picture x (H, W, C) to (ceil(H / stride), ceil(W / stride), O); weight (O, k, k, C). "
        "Output (i, j) begins at input (i * stride - before, j * stride - before); zeros are outside.",
    ),
    "max_pool": Kind(
        ("x",), ("y",), (), (_int("size", 3), _int("stride", 2), _int("before", 1)),
        "The greatest of each square of a picture x (H, W, C), to (ceil(H / stride), ceil(W / stride), C); zeros are "
        "outside.",
    ),
    "mean": Kind(("x",), ("y",), (), (), "y (1, D) is the mean of the rows of x (n, D)."),
    "pair": Kind(
        ("x",), ("y",), (), (),
        "y (ceil(S / 2), 2 D) has neighbouring rows of x (S, D) side by side, zeros for a missing partner.",
    ),
    "zeros": Kind(("x",), ("y",), (), (), "y (1, S) is zero, one column for each row of x (S, D)."),
    "rotate": Kind(
        ("qkv",), ("y",), (), (_int("heads", 1),),
        "y (n, 3 D) is qkv with the queries and keys of each head turned: the numbers 2 i and 2 i + 1 of a head of "
        "width d, as a point of the plane, by the angle p r_i with r_i = exp(-2 i ln(10000) / d), for positions p, "
        "p + 1, … as in positions.",
    ),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation: names of values and weights, and its settings, all of them, in the table's order."""

    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: tuple[str, ...] = ()
    settings: Mapping[str, SettingValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Source:
    """What ``encode`` reads, a value by the name of the source."""

    name: str
    kind: Literal["tokens", "frames", "picture"]
    width: int  # the vocabulary of tokens, the width of a frame, the channels of a picture


@dataclass(frozen=True, slots=True)
class Slot:
    """A piece of the state of a hypothesis. ``step`` reads it by its name.

    It begins as the value ``begin`` of ``encode``; "" stands for zeros (rows, width), or for no rows
    where rows are appended. After a step it is replaced by the value ``end``, or grows by its rows.
    """

    name: str
    width: int  # 0: as wide as there are source states
    rows: int  # 0: the number grows
    begin: str
    end: str
    grows: bool


@dataclass(frozen=True, slots=True)
class Program:
    """A model in use. ``step`` reads the id of the last token as the value ``token``."""

    vocabulary: int  # V
    sources: tuple[Source, ...]
    encode: tuple[Operation, ...]
    fixed: tuple[str, ...]  # values of ``encode`` that ``step`` reads, the same for all hypotheses of a source
    slots: tuple[Slot, ...]
    step: tuple[Operation, ...]
    logits: str  # value of ``step``, (1, V)
    attention: tuple[str, ...]  # values of ``step``, each (A_i, S)
    states: str  # value of ``encode`` whose rows are the source states; "": there are none
    begin: str  # value of ``encode`` whose rows count as positions already read; "": none
    ctc: str  # value of ``encode``: logits of CTC (S, V), or ""
    summary: str  # value of ``encode``: a vector (1, D) of the whole source, or ""
    weights: Mapping[str, np.ndarray]
    version: int = VERSION

    @property
    def size(self) -> int:
        """Return the number of all weights; shared ones count once."""
        return sum(array.size for array in self.weights.values())
