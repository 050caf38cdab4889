"""From a prediction to what can be drawn of its attention."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from dragoman.drawing.attention import AttentionView, Drawing, DrawnSource, draw
from dragoman.errors import UserError
from dragoman.inference.predictions import Prediction, Raw, self_attention_columns
from dragoman.tables import html_table

CLASSES_SHOWN = 10
LONGEST_DRAWN = 60  # tokens or positions of an attention matrix that a notebook draws unasked


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


def draw_prediction(prediction: Prediction, out: Path | None = None) -> Drawing:
    """Draw a prediction's attention. ``out``: the file that the drawing is for, whose suffix has to fit."""
    if prediction.error is not None:
        raise UserError(f"there is nothing to draw: {prediction.error}")
    view = view_attention(prediction, "this prediction", prediction.strides, prediction.reads_source)
    over = [axis.kind for axis in prediction.axes.values() if axis.grid is not None or axis.seconds is not None]
    if over and not prediction.arrays:
        raise UserError(
            f"drawing over a source of kind {over[0]!r} needs what the model read of it: "
            "predict one input, or predict(…, keep_arrays=True)"
        )
    return Drawing(draw([view], out)[1])


def prediction_html(prediction: Prediction) -> str:
    """Return a prediction for a notebook: its attention if it is small enough, and its outputs."""
    parts = []
    has_maps = prediction.error is None and prediction.attention is not None and bool(prediction.labels)
    is_small = max(len(prediction.tokens), len(prediction.labels)) <= LONGEST_DRAWN
    if has_maps and is_small:
        with suppress(UserError):  # a picture that was not kept
            parts.append(draw_prediction(prediction).to_html())
    rows = [
        {"output": output.text, "score": output.score, "log_prob": output.log_prob} for output in prediction.outputs
    ]
    note = prediction.error or (
        "the attention is too large to be drawn here; plot() draws it" if has_maps and not is_small else ""
    )
    parts.append(html_table(rows, note))
    if prediction.probabilities:
        likeliest = list(prediction.probabilities.items())[:CLASSES_SHOWN]
        parts.append(html_table([{"class": label, "probability": share} for label, share in likeliest]))
    return "".join(parts)


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
