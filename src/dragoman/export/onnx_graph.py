"""Write a program as two ONNX graphs, one that encodes a source and one that advances hypotheses.

``encode`` reads one source without padding. ``step`` advances N = B * k rows, k hypotheses of each of B
sources. What is known of the sources is padded to (B, S, …), and ``mask`` (B, S) tells which
positions are real; a growing slot is padded to (N, P, …) with ``past`` (N, P). In ``step`` a value of
a hypothesis is (N, rows, width), and one of a source is (B, rows, width).

Recurrent layers become ONNX's own LSTM, GRU and RNN, so no length is frozen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from dragoman.program.table import Operation, Program

if TYPE_CHECKING:
    import onnx

OPSET = 20
IR_VERSION = 10  # of opset 20: older runtimes refuse newer ones
REST = np.iinfo(np.int64).max  # as the end of a slice: all that is left
ACTIVATIONS = {"relu": "Relu", "tanh": "Tanh", "sigmoid": "Sigmoid"}


class _Graph:
    """Collects nodes and initialisers. ``rows`` is "N" for values of hypotheses; in ``encode`` there are none."""

    def __init__(self, program: Program, is_step: bool) -> None:
        import onnx

        self.onnx, self.helper = onnx, onnx.helper
        self.program, self.is_step = program, is_step
        self.nodes: list[Any] = []
        self.arrays: dict[str, np.ndarray] = {}
        self.by_source = set(program.fixed) if is_step else set()  # values (B, …), the same for all hypotheses
        self._count = 0

    # ---- nodes and constants

    def node(self, kind: str, *inputs: str, outputs: int = 1, names: Iterable[str] = (), **attributes: Any) -> Any:
        """Add a node and return the name of its output, or a list of names if it has several."""
        made = list(names) or [f"_{self._count}_{index}" for index in range(outputs)]
        self._count += 1
        self.nodes.append(self.helper.make_node(kind, list(inputs), made, **attributes))
        return made[0] if len(made) == 1 else made

    def constant(self, array: Any, dtype: Any = np.float32) -> str:
        """Add a constant and return its name."""
        name = f"_c{self._count}"
        self._count += 1
        self.arrays[name] = np.asarray(array, dtype=dtype)
        return name

    def integers(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def weight(self, name: str, form: str = "", change: Callable[[np.ndarray], np.ndarray] | None = None) -> str:
        """Add a weight of the program, changed by a function that ``form`` names, and return its name."""
        key = f"{name}{form}"
        if key not in self.arrays:
            array = self.program.weights[name]
            self.arrays[key] = np.ascontiguousarray(array if change is None else change(array))
        return key

    # ---- shapes

    def size(self, x: str, axis: int) -> str:
        """Return one size of a value, as a vector of one integer."""
        return str(self.node("Shape", x, start=axis, end=axis + 1))

    def reshape(self, x: str, *sizes: int | str) -> str:
        """Reshape to sizes that are numbers or the names of vectors."""
        parts = [size if isinstance(size, str) else self.integers(size) for size in sizes]
        return str(self.node("Reshape", x, parts[0] if len(parts) == 1 else self.node("Concat", *parts, axis=0)))

    def transpose(self, x: str, *axes: int) -> str:
        return str(self.node("Transpose", x, perm=list(axes)))

    def slice(self, x: str, axis: int, begin: int, end: int) -> str:
        return str(self.node("Slice", x, self.integers(begin), self.integers(end), self.integers(axis)))

    def unsqueeze(self, x: str, *axes: int) -> str:
        return str(self.node("Unsqueeze", x, self.integers(*axes)))

    def squeeze(self, x: str, *axes: int) -> str:
        return str(self.node("Squeeze", x, self.integers(*axes)))

    def sources(self) -> str:
        """Return B as a vector of one integer."""
        return self.size("mask", 0)

    def grouped(self, x: str, width: int = -1) -> str:
        """Put the rows of a source side by side: (N, 1, D) → (B, k, D), of unknown width too."""
        last = self.size(x, 2) if width < 0 else self.integers(width)
        return self.reshape(x, self.sources(), self.integers(-1), last)

    def spread(self, x: str) -> str:
        """Repeat a value of a source for each of its hypotheses: (B, r, D) → (N, r, D)."""
        if x not in self.by_source:
            return x
        per_source = self.node("Div", self.size("token", 0), self.sources())
        shape = self.node("Concat", self.sources(), per_source, self.size(x, 1), self.size(x, 2), axis=0)
        wide = self.node("Expand", self.unsqueeze(x, 1), shape)
        return self.reshape(wide, self.size("token", 0), self.size(x, 1), self.size(x, 2))

    def activate(self, x: str, activation: Any, axis: int = -1) -> str:
        if activation == "none":
            return x
        if activation == "glu":
            left, right = self.node("Split", x, outputs=2, axis=axis, num_outputs=2)
            return str(self.node("Mul", left, self.node("Sigmoid", right)))
        return str(self.node(ACTIVATIONS[activation], x))

    def masked(self, scores: str, mask: str) -> str:
        """Set the scores of padding to -inf; the mask has the shape of the scores, or sizes of 1."""
        return str(self.node("Where", mask, scores, self.constant(-np.inf)))

    def positions(self, positions: str, width: int) -> str:
        """Return sinusoidal vectors (n, width) of positions (n,), which are integers."""
        rates = np.exp(np.arange(0, width, 2, dtype=np.float32) * np.float32(-math.log(10000.0) / width))
        real = self.unsqueeze(str(self.node("Cast", positions, to=self.onnx.TensorProto.FLOAT)), 1)
        angles = self.node("Mul", real, self.constant(rates))  # (n, width / 2)
        both = [self.unsqueeze(str(self.node(kind, angles)), 2) for kind in ("Sin", "Cos")]
        flat = self.reshape(str(self.node("Concat", *both, axis=2)), 0, -1)
        return self.slice(flat, 1, 0, width) if width % 2 else flat

    def range(self, size: str) -> str:
        """Return 0, 1, … up to a size, which is a vector of one integer."""
        zero, one = self.constant(0, np.int64), self.constant(1, np.int64)
        return str(self.node("Range", zero, self.squeeze(size, 0), one))

    # ---- operations; each returns the names of its outputs

    def add(self, operation: Operation) -> None:
        """Add an operation, under the names of the program's values."""
        settings: Any = dict(operation.settings)
        made = getattr(self, f"_{operation.kind}")(operation, *operation.inputs, **settings)
        for name, value in zip(operation.outputs, [made] if isinstance(made, str) else made, strict=False):
            if name:
                self.node("Identity", value, names=[name])
                if value in self.by_source:
                    self.by_source.add(name)

    def _embed(self, operation: Operation, tokens: str, scale: float) -> str:
        table = self.weight(operation.weights[0])
        vectors = self.node("Gather", table, tokens)
        vectors = vectors if scale == 1.0 else self.node("Mul", vectors, self.constant(scale))
        return self.unsqueeze(vectors, 1) if self.is_step else str(vectors)

    def _pool_sentences(self, operation: Operation, vectors: str, tokens: str) -> str:
        width = self._width(operation)
        ends = self.node("Gather", self.weight(operation.weights[0]), tokens)  # (T,)
        after = self.node("CumSum", ends, self.constant(0, np.int64))
        sentence = self.node("Cast", self.node("Sub", after, ends), to=self.onnx.TensorProto.INT64)
        count = self.node("Cast", self.node("ReduceSum", ends, keepdims=1), to=self.onnx.TensorProto.INT64)
        member = self.node("OneHot", sentence, count, self.constant([0.0, 1.0]), axis=-1)  # (T, S)
        words = self.node("ReduceSum", member, self.integers(0), keepdims=0)  # (S,)
        begins = self.node("CumSum", words, self.constant(0, np.int64), exclusive=1)
        at = self.node("Cast", self.range(self.size(tokens, 0)), to=self.onnx.TensorProto.FLOAT)
        inside = self.node("Sub", at, self.node("Gather", begins, sentence))
        j = self.node("Add", inside, self.constant(1.0))
        share = self.unsqueeze(str(self.node("Div", j, self.node("Gather", words, sentence))), 1)  # (T, 1) j / J
        dimension = self.constant(np.arange(1, width + 1, dtype=np.float32) / np.float32(width))
        left = self.node("Sub", self.constant(1.0), share)
        right = self.node("Sub", self.constant(1.0), self.node("Mul", share, self.constant(2.0)))
        factors = self.node("Sub", left, self.node("Mul", dimension, right))
        weighted = self.node("Mul", vectors, factors)
        return str(self.node("MatMul", self.transpose(str(member), 1, 0), weighted))

    def _width(self, operation: Operation) -> int:
        """Return the width of the vectors that an operation sums: that of the table they come from."""
        embed = next(each for each in self.program.encode if each.outputs[0] == operation.inputs[0])
        return int(self.program.weights[embed.weights[0]].shape[1])

    def _linear(self, operation: Operation, x: str, activation: str) -> str:
        weight, bias = operation.weights
        y = str(self.node("MatMul", x, self.weight(weight, ".T", lambda array: array.T)))
        if bias:
            y = str(self.node("Add", y, self.weight(bias)))
        made = self.activate(y, activation)
        if x in self.by_source:
            self.by_source.add(made)
        return made

    def _affine(self, operation: Operation, x: str, factor: float, activation: str) -> str:
        scale, shift = operation.weights
        y = x if factor == 1.0 else str(self.node("Mul", x, self.constant(factor)))
        y = str(self.node("Mul", y, self.weight(scale))) if scale else y
        y = str(self.node("Add", y, self.weight(shift))) if shift else y
        return self.activate(y, activation)

    def _add(self, operation: Operation, a: str, b: str, factor: float, activation: str) -> str:
        y = str(self.node("Add", self.spread(a), self.spread(b)))
        y = y if factor == 1.0 else str(self.node("Mul", y, self.constant(factor)))
        return self.activate(y, activation)

    def _multiply(self, operation: Operation, a: str, b: str) -> str:
        return str(self.node("Mul", self.spread(a), self.spread(b)))

    def _layer_norm(self, operation: Operation, x: str, epsilon: float) -> str:
        weights = map(self.weight, operation.weights)
        return str(self.node("LayerNormalization", x, *weights, axis=-1, epsilon=epsilon))

    def _group_norm(self, operation: Operation, x: str, groups: int, epsilon: float) -> str:
        weight, bias = map(self.weight, operation.weights)
        channels = len(self.program.weights[operation.weights[0]])
        parts = self.reshape(x, -1, groups, channels // groups)  # (H * W, G, C / G)
        axes = self.integers(0, 2)
        away = self.node("Sub", parts, self.node("ReduceMean", parts, axes, keepdims=1))
        variance = self.node("ReduceMean", self.node("Mul", away, away), axes, keepdims=1)
        deviation = self.node("Sqrt", self.node("Add", variance, self.constant(epsilon)))
        normal = self.node("Reshape", self.node("Div", away, deviation), self.node("Shape", x))
        return str(self.node("Add", self.node("Mul", normal, weight), bias))

    def _positions(self, operation: Operation, x: str) -> str:
        table = operation.weights[0]
        at = "position" if self.is_step else self.range(self.size(x, 0))
        if table:
            vectors = str(self.node("Gather", self.weight(table), at))
        else:
            vectors = self.positions(at, self._position_width(operation))
        return str(self.node("Add", x, self.unsqueeze(vectors, 1) if self.is_step else vectors))

    def _position_width(self, operation: Operation) -> int:
        """Return how wide the vectors are that sinusoids are added to, from what made them."""
        operations = {name: each for each in (*self.program.encode, *self.program.step) for name in each.outputs}
        value = operation.inputs[0]
        while value in operations:
            made = operations[value]
            if made.kind in ("embed", "linear", "convolve"):
                array = self.program.weights[made.weights[0]]
                width = int(array.shape[1] if made.kind == "embed" else array.shape[0])
                return width // 2 if made.settings.get("activation") == "glu" else width
            value = made.inputs[0]
        return next(source.width for source in self.program.sources if source.name == value)

    def _grid(self, operation: Operation, x: str, vectors: str) -> str:
        width = self.size(x, 2)
        if vectors != "none":
            table = operation.weights[0]
            sides = []
            for axis in (0, 1):
                at = self.range(self.size(x, axis))
                if table:
                    half = self.weight(table, f".{axis}", lambda array, axis=axis: array[axis])  # type: ignore[misc]
                    sides.append(str(self.node("Gather", half, at)))
                else:
                    sides.append(self.positions(at, self._position_width(operation) // 2))
            halves = [
                self.node(
                    "Expand",
                    self.unsqueeze(side, 1 - axis),
                    self.node("Concat", self.size(x, 0), self.size(x, 1), self.size(side, 1), axis=0),
                )
                for axis, side in enumerate(sides)
            ]
            x = str(self.node("Add", x, self.node("Concat", *halves, axis=2)))
        return self.reshape(x, self.integers(-1), width)

    def _self_attention(self, operation: Operation, qkv: str, heads: int, causal: int) -> str:
        split = self.reshape(qkv, 0, 3, heads, -1)  # (S, 3, H, d)
        parts = self.node("Split", self.transpose(split, 1, 2, 0, 3), outputs=3, axis=0, num_outputs=3)
        query, keys, values = (self.squeeze(part, 0) for part in parts)  # (H, S, d)
        scores = str(self.node("MatMul", self._scaled(query, 2), self.transpose(keys, 0, 2, 1)))
        if causal:
            size = self.size(qkv, 0)
            ones = self.node("Expand", self.constant([[True]], bool), self.node("Concat", size, size, axis=0))
            scores = self.masked(scores, str(self.node("Trilu", ones, upper=0)))
        context = self.node("MatMul", self.node("Softmax", scores, axis=-1), values)
        return self.reshape(self.transpose(str(context), 1, 0, 2), 0, -1)

    def _scaled(self, query: str, axis: int) -> str:
        """Divide queries by the square root of the width of a head."""
        width = self.node("Cast", self.size(query, axis), to=self.onnx.TensorProto.FLOAT)
        return str(self.node("Div", query, self.node("Sqrt", width)))

    def _cached_attention(self, operation: Operation, qkv: str, keys: str, values: str, heads: int) -> list[str]:
        query, key, value = self.node("Split", qkv, outputs=3, axis=2, num_outputs=3)  # (N, 1, D)
        real = self.node("Concat", "past", self.node("Equal", "token_column", "token_column"), axis=1)  # (N, P + 1)
        all_keys = str(self.node("Concat", keys, key, axis=1))
        all_values = str(self.node("Concat", values, value, axis=1))
        query = self.transpose(self.reshape(query, 0, 0, heads, -1), 0, 2, 1, 3)  # (N, H, 1, d)
        parted = self.transpose(self.reshape(all_keys, 0, 0, heads, -1), 0, 2, 3, 1)  # (N, H, d, P + 1)
        scores = str(self.node("MatMul", self._scaled(query, 3), parted))
        weights = self.node("Softmax", self.masked(scores, self.unsqueeze(str(real), 1, 2)), axis=-1)
        parted = self.transpose(self.reshape(all_values, 0, 0, heads, -1), 0, 2, 1, 3)
        context = self.transpose(str(self.node("MatMul", weights, parted)), 0, 2, 1, 3)  # (N, 1, H, d)
        return [self.reshape(context, 0, 0, -1), key, value]

    def _cross_attention(
        self, operation: Operation, query: str, keys: str, values: str, heads: int, scale: float
    ) -> list[str]:
        grouped = self.reshape(self.grouped(query), 0, 0, heads, -1)  # (B, k, H, d)
        query = str(self.node("Mul", self.transpose(grouped, 0, 2, 1, 3), self.constant(scale)))
        parted = self.transpose(self.reshape(keys, 0, 0, heads, -1), 0, 2, 3, 1)  # (B, H, d, S)
        scores = str(self.node("MatMul", query, parted))
        weights = str(self.node("Softmax", self.masked(scores, self.unsqueeze("mask", 1, 2)), axis=-1))
        parted = self.transpose(self.reshape(values, 0, 0, heads, -1), 0, 2, 1, 3)
        context = self.transpose(str(self.node("MatMul", weights, parted)), 0, 2, 1, 3)  # (B, k, H, e)
        rows = self.size("token", 0)
        flat = self.reshape(self.reshape(context, 0, 0, -1), rows, self.integers(1), self.integers(-1))
        own = self.transpose(weights, 0, 2, 1, 3)  # (B, k, H, S)
        return [flat, self.reshape(own, rows, self.integers(heads), self.size("mask", 1))]

    def _rows(self, grouped: str) -> str:
        """Return (N, 1, S) of (B, k, S)."""
        return self.reshape(grouped, self.size("token", 0), self.integers(1), self.size(grouped, 2))

    def _dot_scores(self, operation: Operation, query: str, keys: str, scale: float) -> str:
        query = (
            self.grouped(query) if scale == 1.0 else str(self.node("Mul", self.grouped(query), self.constant(scale)))
        )
        return self._rows(str(self.node("MatMul", query, self.transpose(keys, 0, 2, 1))))

    def _additive_scores(self, operation: Operation, query: str, keys: str) -> str:
        vector = self.weight(operation.weights[0])
        if keys not in self.by_source:  # every hypothesis has keys of its own
            hidden = self.node("Tanh", self.node("Add", query, keys))  # (N, S, K)
            return self.unsqueeze(str(self.node("MatMul", hidden, vector)), 1)
        both = self.node("Add", self.unsqueeze(self.grouped(query), 2), self.unsqueeze(keys, 1))  # (B, k, S, K)
        return self._rows(str(self.node("MatMul", self.node("Tanh", both), vector)))

    def _locate(self, operation: Operation, previous: str, keys: str) -> str:
        filters, place = operation.weights
        size = self.program.weights[filters].shape[1]
        kernel = self.weight(filters, ".conv", lambda array: array[:, None])  # (F, 1, k)
        features = self.node("Conv", previous, kernel, pads=[size // 2, size // 2])  # (N, F, S)
        moved = self.node(
            "MatMul", self.transpose(str(features), 0, 2, 1), self.weight(place, ".T", lambda array: array.T)
        )
        return str(self.node("Add", self.spread(keys), moved))

    def _softmax(self, operation: Operation, x: str) -> str:
        if not self.is_step:  # one source, without padding
            return str(self.node("Softmax", x, axis=-1))
        grouped = self.masked(self.grouped(x), self.unsqueeze("mask", 1))
        return self._rows(str(self.node("Softmax", grouped, axis=-1)))

    def _select_best(self, operation: Operation, x: str) -> str:
        best = self.node("ArgMax", x, axis=2, keepdims=0)  # (N, 1)
        return str(self.node("OneHot", best, self.size(x, 2), self.constant([0.0, 1.0]), axis=-1))

    def _weighted_sum(self, operation: Operation, weights: str, values: str) -> str:
        summed = str(self.node("MatMul", self.grouped(weights), values))
        return self._rows(summed)

    def _normalize(self, operation: Operation, x: str) -> str:
        length = self.node("ReduceL2", x, self.integers(-1), keepdims=1)
        return str(self.node("Div", x, self.node("Max", length, self.constant(1e-12))))

    def _recurrent(
        self, operation: Operation, x: str, hidden: str, cell_state: str, cell: str, reverse: int
    ) -> list[str]:
        own, recurrent, bias, new_bias = operation.weights
        width = self.program.weights[recurrent].shape[1]
        order = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2)}.get(cell, (0,))  # ONNX: i o f c, z r h

        def reorder(array: np.ndarray) -> np.ndarray:
            blocks = np.split(array, len(order))
            return np.concatenate([blocks[index] for index in order])[None]

        gates = self.program.weights[bias]
        second = np.zeros_like(gates)
        if new_bias:
            second[2 * width :] = self.program.weights[new_bias]
        both = self.constant(np.concatenate([reorder(gates), reorder(second)], 1))
        axes = (1, 0, 2) if self.is_step else None  # (N, 1, I) → (1, N, I)
        sequence = self.transpose(x, *axes) if axes else self.unsqueeze(x, 1)  # (T, N, I)

        def first(value: str) -> str:
            if not value:
                return ""
            return self.transpose(self.spread(value), 1, 0, 2) if self.is_step else self.unsqueeze(value, 1)

        inputs = [sequence, self.weight(own, ".onnx", reorder), self.weight(recurrent, ".onnx", reorder), both]
        inputs += ["", first(hidden)] + ([first(cell_state)] if cell == "lstm" else [])
        attributes: dict[str, Any] = {"hidden_size": int(width), "direction": "reverse" if reverse else "forward"}
        if cell == "gru":
            attributes["linear_before_reset"] = 1
        if cell in ("tanh", "relu"):
            attributes["activations"] = [cell.capitalize()]
        kind = {"lstm": "LSTM", "gru": "GRU"}.get(cell, "RNN")
        outputs = self.node(kind, *inputs, outputs=3 if cell == "lstm" else 2, **attributes)
        y = self.squeeze(outputs[0], 1)  # (T, N, H)
        lasts = [self.transpose(last, 1, 0, 2) if self.is_step else self.squeeze(last, 1) for last in outputs[1:]]
        return [self.transpose(y, 1, 0, 2) if self.is_step else self.squeeze(y, 1), *lasts]

    def _join(self, operation: Operation, *values: str, axis: str) -> str:
        first = 1 if self.is_step else 0
        return str(self.node("Concat", *map(self.spread, values), axis=first + (axis == "columns")))

    def _slice(self, operation: Operation, x: str, axis: str, begin: int, count: int) -> str:
        first = 1 if self.is_step else 0
        end = begin + count
        return self.slice(self.spread(x), first + (axis == "columns"), begin, REST if begin < 0 and end == 0 else end)

    def _convolve(self, operation: Operation, x: str, stride: int, before: int, after: int, activation: str) -> str:
        weight, bias = operation.weights
        kernel = self.weight(weight, ".conv", lambda array: array.transpose(0, 2, 1))  # (O, I, k)
        rows = self.transpose(x, 0, 2, 1) if self.is_step else self.unsqueeze(self.transpose(x, 1, 0), 0)
        inputs = [rows, kernel, *([self.weight(bias)] if bias else [])]
        y = self.activate(str(self.node("Conv", *inputs, strides=[stride], pads=[before, after])), activation, axis=1)
        return self.transpose(y, 0, 2, 1) if self.is_step else self.transpose(self.squeeze(y, 0), 1, 0)

    def _convolve_picture(self, operation: Operation, x: str, stride: int, before: int, activation: str) -> str:
        weight, bias = operation.weights
        size = self.program.weights[weight].shape[1]
        kernel = self.weight(weight, ".conv", lambda array: array.transpose(0, 3, 1, 2))  # (O, C, k, k)
        inputs = [self._channels_first(x), kernel, *([self.weight(bias)] if bias else [])]
        after = size - 1 - before  # then the output has ceil(H / stride) rows
        y = str(self.node("Conv", *inputs, strides=[stride, stride], pads=[before, before, after, after]))
        return self._channels_last(self.activate(y, activation, axis=1))

    def _max_pool(self, operation: Operation, x: str, size: int, stride: int, before: int) -> str:
        after = size - 1 - before
        padded = self.node("Pad", self._channels_first(x), self.integers(0, 0, before, before, 0, 0, after, after))
        return self._channels_last(str(self.node("MaxPool", padded, kernel_shape=[size, size], strides=[stride] * 2)))

    def _channels_first(self, x: str) -> str:
        return self.unsqueeze(self.transpose(x, 2, 0, 1), 0)

    def _channels_last(self, x: str) -> str:
        return self.transpose(self.squeeze(x, 0), 1, 2, 0)

    def _mean(self, operation: Operation, x: str) -> str:
        return str(self.node("ReduceMean", x, self.integers(0), keepdims=1))

    def _pair(self, operation: Operation, x: str) -> str:
        odd = self.node("Mod", self.size(x, 0), self.integers(2))
        pads = self.node("Concat", self.integers(0, 0), odd, self.integers(0), axis=0)
        padded = str(self.node("Pad", x, pads))
        double = self.node("Mul", self.size(x, 1), self.integers(2))
        return self.reshape(padded, self.integers(-1), str(double))

    def _zeros(self, operation: Operation, x: str) -> str:
        shape = self.node("Concat", self.integers(1), self.size(x, 0), axis=0)
        return str(self.node("Expand", self.constant([[0.0]]), shape))

    def _rotate(self, operation: Operation, qkv: str, heads: int) -> str:
        at = "position" if self.is_step else self.range(self.size(qkv, 0))
        width = self._position_width(operation) // 3
        rows = self.size(at, 0)
        # one row for each position, in encode and in step
        flat = self.reshape(qkv, rows, self.integers(3 * width))
        both, values = self.slice(flat, 1, 0, 2 * width), self.slice(flat, 1, 2 * width, 3 * width)
        pairs = self.reshape(both, -1, 2 * heads, width // heads // 2, 2)
        left, right = (self.squeeze(part, 3) for part in self.node("Split", pairs, outputs=2, axis=3, num_outputs=2))
        turns = self.reshape(self.positions(at, width // heads), -1, 1, width // heads // 2, 2)
        sine, cosine = (self.squeeze(part, 3) for part in self.node("Split", turns, outputs=2, axis=3, num_outputs=2))
        first = self.node("Sub", self.node("Mul", left, cosine), self.node("Mul", right, sine))
        second = self.node("Add", self.node("Mul", left, sine), self.node("Mul", right, cosine))
        turned = self.node("Concat", *(self.unsqueeze(str(part), 3) for part in (first, second)), axis=3)
        whole = str(self.node("Concat", self.reshape(str(turned), 0, -1), values, axis=1))
        return self.unsqueeze(whole, 1) if self.is_step else whole

    # ---- the whole

    def finish(self, name: str, inputs: list[Any], outputs: list[Any]) -> onnx.ModelProto:
        arrays = [self.onnx.numpy_helper.from_array(array, key) for key, array in self.arrays.items()]
        graph = self.helper.make_graph(self.nodes, name, inputs, outputs, arrays)
        imports = [self.helper.make_opsetid("", OPSET)]
        model = self.helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION, producer_name="dragoman")
        self.onnx.checker.check_model(model, full_check=False)
        return model

    def tensor(self, name: str, kind: str, *shape: int | str) -> Any:
        types = {"float": self.onnx.TensorProto.FLOAT, "int": self.onnx.TensorProto.INT64,
                 "bool": self.onnx.TensorProto.BOOL}  # fmt: skip
        return self.helper.make_tensor_value_info(name, types[kind], list(shape))


def encode_graph(program: Program) -> onnx.ModelProto:
    """Return the graph that turns one source into the fixed values and the first slots."""
    graph = _Graph(program, is_step=False)
    inputs = []
    for source in program.sources:
        rows = f"{source.name}.rows"
        if source.kind == "tokens":
            inputs.append(graph.tensor(source.name, "int", rows))
        elif source.kind == "frames":
            inputs.append(graph.tensor(source.name, "float", rows, source.width))
        else:
            inputs.append(graph.tensor(source.name, "float", rows, f"{source.name}.columns", source.width))
    for operation in program.encode:
        graph.add(operation)
    outputs = [graph.tensor(name, "float", *(None, None)) for name in encoded_values(program)]  # type: ignore[arg-type]
    return graph.finish("encode", inputs, outputs)


def encoded_values(program: Program) -> list[str]:
    """Return the values that ``encode`` has to give, each once."""
    begins = [slot.begin for slot in program.slots if slot.begin]
    own = [program.begin, program.states, program.ctc, program.summary]
    return list(dict.fromkeys([*program.fixed, *begins, *(name for name in own if name)]))


def step_graph(program: Program) -> onnx.ModelProto:
    """Return the graph that advances N hypotheses of B sources by one token."""
    graph = _Graph(program, is_step=True)
    inputs = [graph.tensor("token", "int", "N"), graph.tensor("position", "int", "N")]
    inputs.append(graph.tensor("mask", "bool", "B", "S"))
    inputs.append(graph.tensor("past", "bool", "N", "P"))
    inputs += [graph.tensor(name, "float", "B", None, None) for name in program.fixed]  # type: ignore[arg-type]
    for slot in program.slots:
        inputs.append(graph.tensor(slot.name, "float", "N", slot.rows or "P", slot.width or "S"))
    graph.node("Unsqueeze", "token", graph.integers(1), names=["token_column"])
    for operation in program.step:
        graph.add(operation)
    graph.node("Squeeze", program.logits, graph.integers(1), names=["logits"])
    outputs = [graph.tensor("logits", "float", "N", program.vocabulary)]
    if program.attention:
        graph.node("Concat", *program.attention, axis=1, names=["attention"])
        outputs.append(graph.tensor("attention", "float", "N", None, "S"))  # type: ignore[arg-type]
    ends = {slot.end: slot for slot in program.slots}
    outputs += [graph.tensor(end, "float", "N", None, slot.width or "S") for end, slot in ends.items()]  # type: ignore[arg-type]
    return graph.finish("step", inputs, outputs)
