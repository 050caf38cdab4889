"""Run a program with numpy: the plain interpreter that every faster one is held against.

One source and one hypothesis at a time, one function for each operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dragoman.config import TooLong
from dragoman.program.table import Operation, Program

Values: TypeAlias = "dict[str, np.ndarray]"
# Gets inputs, weights (None: absent), settings and the position of the first row; returns the outputs.
Run: TypeAlias = "Callable[..., np.ndarray | tuple[np.ndarray, ...]]"


@dataclass(frozen=True, slots=True)
class Encoded:
    """What is known of a source before the first token."""

    fixed: Mapping[str, np.ndarray]
    slots: Mapping[str, np.ndarray]
    states: int  # S, the number of source states
    position: int  # of the first token
    ctc: np.ndarray | None  # (S, V) logits
    summary: np.ndarray | None  # (1, D)


@dataclass(frozen=True, slots=True)
class Advanced:
    """What a hypothesis is after one more token."""

    logits: np.ndarray  # (V,)
    attention: np.ndarray | None  # (A, S)
    slots: Mapping[str, np.ndarray]


class Reference:
    """Runs a program."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def encode(self, sources: Mapping[str, np.ndarray]) -> Encoded:
        """Encode a source: token ids (S,), frames (S, D) or a picture (H, W, C) by name."""
        program = self.program
        values: Values = {}
        for source in program.sources:
            array = np.asarray(sources[source.name])
            values[source.name] = array if source.kind == "tokens" else array.astype(np.float32)
        self._run(program.encode, values, 0)
        slots = {}
        for slot in program.slots:
            rows = 0 if slot.grows else slot.rows
            slots[slot.name] = values[slot.begin] if slot.begin else np.zeros((rows, slot.width), np.float32)
        return Encoded(
            {name: values[name] for name in program.fixed},
            slots,
            len(values[program.states]) if program.states else 0,
            len(values[program.begin]) if program.begin else 0,
            values.get(program.ctc),
            values.get(program.summary),
        )

    def step(
        self, token: int, fixed: Mapping[str, np.ndarray], slots: Mapping[str, np.ndarray], position: int
    ) -> Advanced:
        """Advance a hypothesis by one token, the one at ``position``."""
        program = self.program
        values: Values = {**fixed, **slots, "token": np.array([token])}
        self._run(program.step, values, position)
        after = {}
        for slot in program.slots:
            new = values[slot.end]
            after[slot.name] = np.concatenate([slots[slot.name], new]) if slot.grows else new
        attention = np.concatenate([values[name] for name in program.attention]) if program.attention else None
        return Advanced(values[program.logits][0], attention, after)

    def _run(self, operations: Iterable[Operation], values: Values, position: int) -> None:
        weights = self.program.weights
        for operation in operations:
            inputs = [values[name] if name else None for name in operation.inputs]
            arrays = [weights[name] if name else None for name in operation.weights]
            outputs = RUN[operation.kind](*inputs, *arrays, **_own_settings(operation, position))
            results = outputs if isinstance(outputs, tuple) else (outputs,)
            for name, array in zip(operation.outputs, results, strict=False):
                if name:
                    values[name] = array


def _own_settings(operation: Operation, position: int) -> dict[str, Any]:
    settings: dict[str, Any] = dict(operation.settings)
    return {**settings, "position": position} if operation.kind in ("positions", "rotate") else settings


def activate(x: np.ndarray, activation: str) -> np.ndarray:
    """Apply an activation to the last axis."""
    if activation == "relu":
        return np.maximum(x, 0)
    if activation == "tanh":
        return np.tanh(x)
    if activation == "sigmoid":
        return sigmoid(x)
    if activation == "glu":
        left, right = np.split(x, 2, axis=-1)
        return np.asarray(left * sigmoid(right))
    return x


def sigmoid(x: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-x)) without overflow."""
    return np.asarray(0.5 * (np.tanh(0.5 * x) + 1), dtype=x.dtype)


def softmax(x: np.ndarray) -> np.ndarray:
    """Return the softmax over the last axis."""
    exponentials = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(-1, keepdims=True))


def sinusoids(begin: int, length: int, width: int) -> np.ndarray:
    """Return sinusoidal position vectors (length, width) (Vaswani et al. 2017, section 3.5)."""
    positions = np.arange(begin, begin + length, dtype=np.float32)[:, None]
    rates = np.exp(np.arange(0, width, 2, dtype=np.float32) * np.float32(-math.log(10000.0) / width))
    angles = positions * rates  # (length, width / 2)
    return np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, -1)[:, :width]


def _embed(tokens: np.ndarray, table: np.ndarray, scale: float) -> np.ndarray:
    return np.asarray(table[tokens] * np.float32(scale))


def _pool_sentences(vectors: np.ndarray, tokens: np.ndarray, ends: np.ndarray) -> np.ndarray:
    width = vectors.shape[1]
    last = np.flatnonzero(ends[tokens])
    sentences = []
    for begin, end in zip([0, *(last[:-1] + 1)], last, strict=True):
        words = vectors[begin : end + 1]  # (J, D)
        j = np.arange(1, len(words) + 1, dtype=np.float32)[:, None] / np.float32(len(words))
        k = np.arange(1, width + 1, dtype=np.float32) / np.float32(width)
        sentences.append((words * ((1 - j) - k * (1 - 2 * j))).sum(0))
    return np.array(sentences, dtype=np.float32).reshape(-1, width)


def _linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, activation: str) -> np.ndarray:
    y = x @ weight.T
    return activate(y if bias is None else y + bias, activation)


def _affine(
    x: np.ndarray, scale: np.ndarray | None, shift: np.ndarray | None, factor: float, activation: str
) -> np.ndarray:
    y = x * np.float32(factor)
    y = y if scale is None else y * scale
    return activate(y if shift is None else y + shift, activation)


def _add(a: np.ndarray, b: np.ndarray, factor: float, activation: str) -> np.ndarray:
    return activate((a + b) * np.float32(factor), activation)


def _layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, epsilon: float) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((centred * centred).mean(-1, keepdims=True) + np.float32(epsilon))
    return np.asarray(centred / deviation * weight + bias)


def _group_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, groups: int, epsilon: float) -> np.ndarray:
    parts = x.reshape(*x.shape[:2], groups, -1)  # (H, W, G, C / G)
    centred = parts - parts.mean((0, 1, 3), keepdims=True)
    deviation = np.sqrt((centred * centred).mean((0, 1, 3), keepdims=True) + np.float32(epsilon))
    return np.asarray((centred / deviation).reshape(x.shape) * weight + bias)


def _positions(x: np.ndarray, table: np.ndarray | None, position: int) -> np.ndarray:
    end = position + len(x)
    if table is None:
        return np.asarray(x + sinusoids(position, len(x), x.shape[1]))
    if end > len(table):
        raise TooLong(f"a sequence of {end} positions is longer than the {len(table)} that the model knows; cut it")
    return np.asarray(x + table[position:end])


def _rotate(qkv: np.ndarray, heads: int, position: int) -> np.ndarray:
    width = qkv.shape[1] // 3
    pairs = qkv[:, : 2 * width].reshape(len(qkv), 2 * heads, -1, 2)
    left, right = pairs[..., 0], pairs[..., 1]
    turns = sinusoids(position, len(qkv), width // heads)[:, None]  # (n, 1, d)
    sine, cosine = turns[..., ::2], turns[..., 1::2]
    turned = np.stack([left * cosine - right * sine, left * sine + right * cosine], -1)
    return np.concatenate([turned.reshape(len(qkv), -1), qkv[:, 2 * width :]], 1)


def _grid(x: np.ndarray, table: np.ndarray | None, vectors: str) -> np.ndarray:
    height, columns, width = x.shape
    if vectors != "none":
        if table is None:
            down, across = (sinusoids(0, count, width // 2) for count in (height, columns))
        elif max(height, columns) > table.shape[1]:
            raise TooLong(f"a picture of {height} by {columns} regions is larger than the model knows; make it smaller")
        else:
            down, across = table[0, :height], table[1, :columns]
        half = (height, columns, width // 2)
        x = x + np.concatenate([np.broadcast_to(down[:, None], half), np.broadcast_to(across, half)], -1)
    return x.reshape(height * columns, width)


def _attend(query: np.ndarray, keys: np.ndarray, values: np.ndarray, scale: float, masked: Any) -> tuple[Any, Any]:
    """Attend with heads on axis 1: query (n, H, d), keys (S, H, d), values (S, H, e)."""
    scores = np.einsum("nhd,shd->hns", query, keys) * np.float32(scale)
    if masked is not None:
        scores = np.where(masked, np.float32(-np.inf), scores)
    weights = softmax(scores)  # (H, n, S)
    return np.einsum("hns,she->nhe", weights, values).reshape(len(query), -1), weights


def _heads(x: np.ndarray, heads: int) -> np.ndarray:
    return x.reshape(len(x), heads, -1)


def _self_attention(qkv: np.ndarray, heads: int, causal: int) -> np.ndarray:
    query, keys, values = (_heads(part, heads) for part in np.split(qkv, 3, axis=1))
    masked = np.triu(np.ones((len(qkv), len(qkv)), bool), 1) if causal else None
    return np.asarray(_attend(query, keys, values, query.shape[-1] ** -0.5, masked)[0])


def _cached_attention(
    qkv: np.ndarray, keys: np.ndarray, values: np.ndarray, heads: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    query, key, value = np.split(qkv, 3, axis=1)
    all_keys, all_values = _heads(np.concatenate([keys, key]), heads), _heads(np.concatenate([values, value]), heads)
    context, _ = _attend(_heads(query, heads), all_keys, all_values, all_keys.shape[-1] ** -0.5, None)
    return context, key, value


def _cross_attention(
    query: np.ndarray, keys: np.ndarray, values: np.ndarray, heads: int, scale: float
) -> tuple[np.ndarray, np.ndarray]:
    context, weights = _attend(_heads(query, heads), _heads(keys, heads), _heads(values, heads), scale, None)
    return context, weights[:, 0]


def _dot_scores(query: np.ndarray, keys: np.ndarray, scale: float) -> np.ndarray:
    return np.asarray((query * np.float32(scale)) @ keys.T)


def _additive_scores(query: np.ndarray, keys: np.ndarray, vector: np.ndarray) -> np.ndarray:
    return np.asarray(np.tanh(query + keys) @ vector)[None]


def _locate(previous: np.ndarray, keys: np.ndarray, filters: np.ndarray, place: np.ndarray) -> np.ndarray:
    size = filters.shape[1]
    padded = np.pad(previous[0], (size // 2, size // 2))
    features = sliding_window_view(padded, size) @ filters.T  # (S, F)
    return np.asarray(keys + features @ place.T)


def _select_best(x: np.ndarray) -> np.ndarray:
    chosen = np.zeros_like(x)
    chosen[np.arange(len(x)), x.argmax(-1)] = 1
    return chosen


def _normalize(x: np.ndarray) -> np.ndarray:
    return np.asarray(x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), np.float32(1e-12)))


def _recurrent(
    x: np.ndarray,
    hidden: np.ndarray | None,
    cell_state: np.ndarray | None,
    input: np.ndarray,
    recurrent: np.ndarray,
    bias: np.ndarray,
    new_bias: np.ndarray | None,
    cell: str,
    reverse: int,
) -> tuple[np.ndarray, ...]:
    width = recurrent.shape[1]
    h = np.zeros(width, np.float32) if hidden is None else hidden[0]
    c = np.zeros(width, np.float32) if cell_state is None else cell_state[0]
    gates = x @ input.T + bias
    outputs = np.zeros((len(x), width), np.float32)
    for t in reversed(range(len(x))) if reverse else range(len(x)):
        total = recurrent @ h
        if cell == "lstm":
            i, f, g, o = np.split(gates[t] + total, 4)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
        elif cell == "gru":
            r, z = np.split(sigmoid(gates[t, : 2 * width] + total[: 2 * width]), 2)
            new = np.tanh(gates[t, 2 * width :] + r * (total[2 * width :] + (0 if new_bias is None else new_bias)))
            h = (1 - z) * new + z * h
        else:
            h = activate(gates[t] + total, cell)
        outputs[t] = h
    return (outputs, h[None], c[None]) if cell == "lstm" else (outputs, h[None])


def _join(*values: np.ndarray, axis: str) -> np.ndarray:
    return np.concatenate(values, axis=0 if axis == "rows" else 1)


def _slice(x: np.ndarray, axis: str, begin: int, count: int) -> np.ndarray:
    begin += (len(x) if axis == "rows" else x.shape[1]) if begin < 0 else 0
    return x[begin : begin + count] if axis == "rows" else x[:, begin : begin + count]


def _convolve(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, stride: int, before: int, after: int, activation: str
) -> np.ndarray:
    size = weight.shape[1]
    windows = sliding_window_view(np.pad(x, ((before, after), (0, 0))), size, axis=0)[::stride]  # (n, I, k)
    y = np.einsum("nik,oki->no", windows, weight, optimize=True)
    return activate(y if bias is None else y + bias, activation)


def _squares(x: np.ndarray, size: int, stride: int, before: int) -> np.ndarray:
    """Return the squares that a layer looks at, (ceil(H / stride), ceil(W / stride), C, size, size)."""
    counts = [-(-side // stride) for side in x.shape[:2]]
    after = [
        max(0, (count - 1) * stride + size - before - side) for count, side in zip(counts, x.shape[:2], strict=True)
    ]
    padded = np.pad(x, ((before, after[0]), (before, after[1]), (0, 0)))
    windows = sliding_window_view(padded, (size, size), axis=(0, 1))[::stride, ::stride]
    return windows[: counts[0], : counts[1]]


def _convolve_picture(
    x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None, stride: int, before: int, activation: str
) -> np.ndarray:
    y = np.einsum("hwcij,oijc->hwo", _squares(x, weight.shape[1], stride, before), weight, optimize=True)
    return activate(y if bias is None else y + bias, activation)


def _max_pool(x: np.ndarray, size: int, stride: int, before: int) -> np.ndarray:
    return np.asarray(_squares(x, size, stride, before).max((-1, -2)))


def _pair(x: np.ndarray) -> np.ndarray:
    return np.pad(x, ((0, len(x) % 2), (0, 0))).reshape(-1, 2 * x.shape[1])


RUN: Mapping[str, Run] = {
    "embed": _embed,
    "pool_sentences": _pool_sentences,
    "linear": _linear,
    "affine": _affine,
    "add": _add,
    "multiply": lambda a, b: a * b,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "positions": _positions,
    "grid": _grid,
    "self_attention": _self_attention,
    "cached_attention": _cached_attention,
    "cross_attention": _cross_attention,
    "dot_scores": _dot_scores,
    "additive_scores": _additive_scores,
    "locate": _locate,
    "softmax": softmax,
    "select_best": _select_best,
    "weighted_sum": lambda weights, values: weights @ values,
    "normalize": _normalize,
    "recurrent": _recurrent,
    "join": _join,
    "slice": _slice,
    "convolve": _convolve,
    "convolve_picture": _convolve_picture,
    "max_pool": _max_pool,
    "mean": lambda x: x.mean(0, keepdims=True),
    "pair": _pair,
    "zeros": lambda x: np.zeros((1, len(x)), np.float32),
    "rotate": _rotate,
}
