"""From a prediction to what can be drawn of its attention."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dragoman.drawing.attention import AttentionView, DrawnSource
from dragoman.errors import UserError
from dragoman.inference.predictions import Prediction, Raw, self_attention_columns


def view_attention(prediction: Prediction, name: str, strides: Mapping[str, int], reads_source: bool) -> AttentionView:
    """Return where each token of the best output looked.

    That is in the source. Of a model without attention to a source (one network over source and target, or a language
    model) it is in what the decoder had read before, which needs a prediction made with ``maps=True``. ``name`` is what
    messages call the system.
    """
    output = prediction.outputs[0]
    kind = next((axis.kind for axis in prediction.axes.values()), "text")
    if output.attention is not None:
        weights = output.attention.mean(1)  # (T, S)
        files = _files(prediction, strides, weights)
        columns, along = prediction.labels, "source"
    elif output.self_attention is not None:
        weights = output.self_attention.mean((0, 1))  # (T, P)
        columns, along = tuple(self_attention_columns(prediction.labels, output.tokens, reads_source)), "read before"
        files = {}
    else:
        raise UserError(f"{name}: this model has no attention to draw")
    return AttentionView(_title(prediction.source), output.text, output.tokens, columns, weights, along, kind, files)


def _files(prediction: Prediction, strides: Mapping[str, int], weights: np.ndarray) -> dict[str, DrawnSource]:
    arrays = prediction.arrays or {}
    files = {}
    begin = 0
    for name, axis in prediction.axes.items():
        end = begin + len(axis.labels)
        if name in arrays:
            path = prediction.source if isinstance(prediction.source, str) else prediction.source[name]
            files[name] = DrawnSource(axis, arrays[name], path, strides[name], weights[:, begin:end])
        begin = end
    return files


def _title(source: Raw) -> str:
    return source if isinstance(source, str) else " · ".join(source.values())
