"""Read a program as a Transformer of CTranslate2.

CTranslate2 has a fixed list of architectures. This file follows the operations of a program one by
one, and each must be the one that CTranslate2 computes at that place; anything else is refused by
its name. The weights go into CTranslate2's own specification classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dragoman.data.vocabulary import BOS, EOS, UNK
from dragoman.errors import UserError
from dragoman.nn.blocks.positions import COUNTING
from dragoman.program.table import Operation, Program, SettingValue

EPSILON = 1e-5  # of CTranslate2's layer norms
POSITIONS = 2048  # rows of the table of sinusoids, which CTranslate2 would compute in another order

# What a Transformer of CTranslate2 is made of, and what a message calls the other operations.
KNOWN = {
    "embed", "affine", "linear", "positions", "layer_norm", "self_attention", "cached_attention", "cross_attention",
    "add", "mean",
}  # fmt: skip
NAMES = {
    "recurrent": "recurrent layers",
    "convolve": "convolutions",
    "convolve_picture": "convolutions over pictures",
    "pool_sentences": "one state per sentence",
    "pair": "encoder layers that halve the states",
    "locate": "location-aware attention",
    "group_norm": "group normalisation",
    "max_pool": "pooling",
    "grid": "position vectors of pictures",
    "additive_scores": "additive attention",
    "dot_scores": "single-head attention",
    "rotate": "rotary positions",
}


def refuse(what: str) -> UserError:
    """Return the error for a model that CTranslate2 has no architecture for."""
    return UserError(
        f"CTranslate2 cannot express this model: {what}; it takes Transformers that read one text and write one. "
        "Export it to ONNX (--to onnx), which takes every model"
    )


def check_shape(program: Program) -> None:
    """Refuse a program that is no Transformer from one text to another, naming what it has instead."""
    if not program.sources:
        raise refuse("it is a language model")
    if len(program.sources) > 1:
        names = ", ".join(source.name for source in program.sources)
        raise refuse(f"it reads several sources ({names})")
    if COUNTING in program.weights:
        raise refuse("its tags take no positions (tags = true)")
    if program.sources[0].kind != "tokens":
        kinds = {"picture": "pictures", "frames": "sound or feature sequences"}
        raise refuse(f"it reads {kinds[program.sources[0].kind]}")
    if program.begin:
        raise refuse("one network reads source and target")
    kinds = {operation.kind: "" for operation in (*program.encode, *program.step)}
    unknown = [kind for kind in kinds if kind not in KNOWN]
    found = [NAMES[kind] for kind in unknown if kind in NAMES] or [f"the operation {kind!r}" for kind in unknown]
    if found:
        raise refuse(f"it has {', '.join(found)}")


@dataclass(frozen=True, slots=True)
class Vectors:
    """The table of token vectors of one side, as CTranslate2 has it."""

    table: np.ndarray  # (V, D)
    scaled: bool  # CTranslate2 multiplies by the square root of D
    positions: np.ndarray  # (M, D)


class Reader:
    """Takes the operations of one side in their order; ``x`` is the value that the next one must read."""

    def __init__(self, program: Program, operations: Sequence[Operation], x: str) -> None:
        self.program = program
        self._left = list(operations)
        self.x = x

    def weight(self, name: str) -> np.ndarray:
        """Return a copy of a weight: CTranslate2 quantises in place, and the run goes on with its own."""
        return np.array(self.program.weights[name], np.float32)

    def is_next(self, kind: str) -> bool:
        return bool(self._left) and self._left[0].kind == kind and self._left[0].inputs[0] == self.x

    def take(self, kind: str, *more: str, **settings: SettingValue) -> Operation:
        """Take an operation of x and perhaps further values; x becomes its first output."""
        if not self._left:
            raise refuse(f"a {kind!r} is missing at the end of its operations")
        operation = self._left.pop(0)
        expected = (kind, (self.x, *more))
        if (operation.kind, operation.inputs) != expected:
            raise refuse(f"it has the operation {operation.kind!r} where a Transformer has {kind!r}")
        for name, value in settings.items():
            if operation.settings[name] != value:
                raise refuse(f"{name} = {operation.settings[name]} of its {kind!r} should be {value}")
        self.x = operation.outputs[0]
        return operation

    def finish(self) -> None:
        if self._left:
            raise refuse(f"it has the operation {self._left[0].kind!r} after the last layer of a Transformer")

    # ---- layers; each takes its operations and fills a part of the specification

    def linear(self, spec: Any, activation: str = "none") -> None:
        weight, bias = self.matrix(activation)
        spec.weight, spec.bias = weight, bias

    def matrix(self, activation: str = "none") -> tuple[np.ndarray, np.ndarray]:
        """Take a linear layer and return its weight (O, I) and bias (O)."""
        name, bias = self.take("linear", activation=activation).weights
        weight = self.weight(name)
        return weight, self.weight(bias) if bias else np.zeros(len(weight), np.float32)

    def norm(self, spec: Any) -> None:
        operation = self.take("layer_norm")
        if not math.isclose(float(operation.settings["epsilon"]), EPSILON):
            raise refuse(f"epsilon = {operation.settings['epsilon']} of its layer norms should be {EPSILON}")
        spec.gamma, spec.beta = map(self.weight, operation.weights)

    def vectors(self, longest: int) -> Vectors:
        """Take the token vectors, their scale, a linear layer after them, and the positions."""
        embed = self.take("embed")
        table, scale = self.weight(embed.weights[0]), float(embed.settings["scale"])
        if self.is_next("affine"):
            affine = self.take("affine", activation="none")
            if any(affine.weights):
                raise refuse("its token vectors are changed by an affine layer")
            scale *= float(affine.settings["factor"])
        if self.is_next("linear"):  # a row of the table is all that it reads, so it can be applied to the table
            weight, bias = self.matrix()
            table, scale = scale * table @ weight.T + bias, 1.0
        scaled = math.isclose(scale, math.sqrt(table.shape[1]), rel_tol=1e-6)
        positions = self.take("positions").weights[0]
        vectors = self.weight(positions) if positions else sinusoids(longest, table.shape[1])
        return Vectors(table if scaled or scale == 1.0 else scale * table, scaled, vectors)

    def residual(self, norm: Any, is_pre: bool, inside: Any) -> None:
        """Take a residual connection with its layer norm; ``inside`` takes what it goes around."""
        before = self.x
        if is_pre:
            self.norm(norm)
        inside()
        after, self.x = self.x, before
        self.take("add", after, factor=1.0, activation="none")
        if not is_pre:
            self.norm(norm)

    def feed_forward(self, spec: Any, is_pre: bool) -> None:
        def inside() -> None:
            self.linear(spec.linear_0, "relu")
            self.linear(spec.linear_1)

        self.residual(spec.layer_norm, is_pre, inside)


def sinusoids(length: int, width: int) -> np.ndarray:
    """Return the vectors (length, width) of the operation ``positions`` without a table."""
    rates = np.exp(np.arange(0, width, 2, dtype=np.float32) * np.float32(-math.log(10000.0) / width))
    angles = np.arange(length, dtype=np.float32)[:, None] * rates
    vectors = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(length, -1)
    return np.ascontiguousarray(vectors[:, :width])


def read_encoder(program: Program, longest: int) -> Any:
    """Return the encoder of a program as a specification of CTranslate2."""
    from ctranslate2.specs import transformer_spec

    aside = {program.summary, program.ctc, *program.fixed}  # what the decoder and others read of the states
    operations = [operation for operation in program.encode if operation.outputs[0] not in aside]
    layers, heads, is_pre = _survey(operations, "self_attention")
    spec = transformer_spec.TransformerEncoderSpec(layers, heads, pre_norm=is_pre)
    reader = Reader(program, operations, program.sources[0].name)
    _set_vectors(spec, spec.embeddings[0], reader.vectors(longest))
    for layer in spec.layer:

        def attend(own: Any = layer.self_attention) -> None:
            reader.linear(own.linear[0])
            reader.take("self_attention", heads=heads, causal=0)
            reader.linear(own.linear[1])

        reader.residual(layer.self_attention.layer_norm, is_pre, attend)
        reader.feed_forward(layer.ffn, is_pre)
    if is_pre:
        reader.norm(spec.layer_norm)
    reader.finish()
    if reader.x != program.states:
        raise refuse("its encoder does not end with its states")
    return spec


def read_decoder(program: Program, longest: int) -> Any:
    """Return the decoder of a program as a specification of CTranslate2."""
    from ctranslate2.specs import transformer_spec

    layers, heads, is_pre = _survey(program.step, "cached_attention")
    spec = transformer_spec.TransformerDecoderSpec(layers, heads, pre_norm=is_pre)
    spec.start_from_zero_embedding = False  # the start symbol has a vector of its own, as every token has
    reader = Reader(program, program.step, "token")
    _set_vectors(spec, spec.embeddings, reader.vectors(longest))
    slots = {slot.end: slot for slot in program.slots}
    made = {operation.outputs[0]: operation for operation in program.encode}
    for layer in spec.layer:

        def attend_to_past(own: Any = layer.self_attention) -> None:
            reader.linear(own.linear[0])
            past = _next_inputs(reader, "cached_attention")
            added = reader.take("cached_attention", *past, heads=heads).outputs[1:]
            if [slots[name].name for name in added] != list(past) or any(slots[name].begin for name in added):
                raise refuse("its decoder keeps something else than the keys and values of earlier tokens")
            reader.linear(own.linear[1])

        def attend_to_memory(own: Any = layer.attention) -> None:
            reader.linear(own.linear[0])
            memory = _next_inputs(reader, "cross_attention")
            width = len(own.linear[0].weight)
            operation = reader.take("cross_attention", *memory, heads=heads)
            if not math.isclose(float(operation.settings["scale"]), (width // heads) ** -0.5, rel_tol=1e-6):
                raise refuse("its attention is not scaled by the square root of the width of a head")
            both = []
            for name in memory:
                if made[name].kind != "linear" or made[name].inputs != (program.states,):
                    raise refuse("its keys and values are not made of the encoder's states")
                both.append(Reader(program, [made[name]], program.states).matrix())
            weights, biases = zip(*both, strict=True)
            own.linear[1].weight, own.linear[1].bias = np.concatenate(weights), np.concatenate(biases)
            reader.linear(own.linear[2])

        reader.residual(layer.self_attention.layer_norm, is_pre, attend_to_past)
        reader.residual(layer.attention.layer_norm, is_pre, attend_to_memory)
        reader.feed_forward(layer.ffn, is_pre)
    if is_pre:
        reader.norm(spec.layer_norm)
    weight, bias = reader.matrix()
    if reader.is_next("linear"):  # two linear layers in a row are one
        last, shift = reader.matrix()
        weight, bias = last @ weight, last @ bias + shift
    spec.projection.weight = weight
    if bias.any():
        spec.projection.bias = bias
    reader.finish()
    return spec


def make_spec(program: Program, source: Sequence[str], target: Sequence[str], longest: int) -> Any:
    """Return a whole program as a specification, with the vocabularies of both sides."""
    from ctranslate2.specs import transformer_spec

    check_shape(program)
    spec = transformer_spec.TransformerSpec(read_encoder(program, longest), read_decoder(program, longest))
    spec.register_source_vocabulary(list(source))
    spec.register_target_vocabulary(list(target))
    config = spec.config
    config.unk_token, config.bos_token, config.eos_token = target[UNK], target[BOS], target[EOS]
    config.decoder_start_token = target[BOS]
    config.add_source_bos, config.add_source_eos = False, True
    return spec


def _set_vectors(spec: Any, embeddings: Any, vectors: Vectors) -> None:
    embeddings.weight = vectors.table
    spec.scale_embeddings = vectors.scaled
    spec.position_encodings.encodings = vectors.positions


def _survey(operations: Sequence[Operation], attention: str) -> tuple[int, int, bool]:
    """Return the number of layers, that of heads, and whether layer norms come before the sublayers."""
    found = [operation for operation in operations if operation.kind == attention]
    heads = {int(operation.settings["heads"]) for operation in found}
    if len(heads) != 1:
        raise refuse("its layers have no attention to their own side, or differ in their heads")
    after = next(index for index, operation in enumerate(operations) if operation.kind == "positions") + 1
    return len(found), heads.pop(), operations[after].kind == "layer_norm"


def _next_inputs(reader: Reader, kind: str) -> tuple[str, ...]:
    """Return what the next operation reads beside x, if it is of this kind."""
    return reader._left[0].inputs[1:] if reader.is_next(kind) else ()
