"""The attention maps of one output, and how many maps a model has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from dragoman.errors import UserError
from dragoman.inference.predictions import self_attention_columns
from dragoman.inference.requests import PreparedInput
from dragoman.inference.session import Session
from dragoman.inference.system import System
from dragoman.studio import records
from dragoman.studio.views.matrices import MAX_FINE_CELLS, pack_weights

Which: TypeAlias = Literal["cross", "encoder", "decoder"]  # attention to the source, or self-attention of a side


def describe_attention(
    session: Session,
    prepared: PreparedInput,
    tokens: Sequence[int],
    which: Which,
    max_fine_cells: int = MAX_FINE_CELLS,
) -> records.Attention:
    """Describe every map of the output with these tokens.

    Larger blocks than ``max_fine_cells`` are sent coarsely.
    """
    system = session.system
    if any(not 0 <= token < system.target.size for token in tokens):
        raise UserError(f"tokens: the vocabulary ends at {system.target.size - 1}; give the ids of an output")
    labels = [label for axis in session.axes(prepared).values() for label in axis.labels]
    pieces = system.target.pieces(tokens)
    rows, columns = pieces, labels
    weights: np.ndarray | None = None  # (L * H, rows, columns)
    if which == "cross":
        cross = session.force(prepared, [tokens], attention=True)[0].attention if tokens else None  # (T, A, S)
        weights = None if cross is None else cross[..., : len(labels)].transpose(1, 0, 2)
    else:
        maps = session.self_attention(prepared, [tokens])
        own = maps.encoder if which == "encoder" else maps.outputs[0]  # (L, H, rows, columns)
        weights = None if own is None else own.reshape(-1, *own.shape[2:])
        if which == "encoder":
            rows = labels
        else:
            columns = self_attention_columns(labels, pieces, system.model.decoder.reads_source)
    if weights is None:
        missing = "attention to the source" if which == "cross" else f"self-attention in its {which}"
        raise UserError(f"this model has no {missing}; the other views work without it")
    shape = count_maps(system, which)
    return records.Attention(
        which=which,
        rows=rows,
        columns=columns,
        layers=shape.layers,
        heads=shape.heads,
        average=pack_weights(weights.mean(0)),
        maps=pack_weights(weights, max_fine_cells),
    )


def count_maps(system: System, which: Which) -> records.Maps:
    """Return how many layers and heads this kind of attention has."""
    model = system.model
    layers, heads = {
        "cross": model.decoder.map_shape,
        "encoder": model.self_attention_shape,
        "decoder": model.decoder.self_attention_shape,
    }[which]
    return records.Maps(layers=layers, heads=heads)
