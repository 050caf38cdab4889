"""Where a model looked, drawn as its source is: text beside text, light over a picture, bands below a sound."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dragoman.errors import UserError
from dragoman.overlays import over_picture, stacked
from dragoman.overlays_sound import over_spectrogram
from dragoman.pictures import alignment_svg
from dragoman.predictions import read_before

if TYPE_CHECKING:
    from dragoman.predictions import Prediction, Raw
    from dragoman.system import System

SUFFIXES = {
    "image": ".png",
    "speech": ".png",
}  # of what is drawn over a source of this kind; others are drawn as text, .svg
LONGEST_TITLE = 100  # characters of the input


def draw(system: System, predictions: Sequence[Prediction], out: Path | None) -> tuple[Path, bytes | str]:
    """Where the drawing goes (by default alignment.svg or .png, as the source needs), and what is to be written there.

    Of several sources the first that is drawn over is shown, or all of them as text. Several pictures or recordings
    make one sheet, each below the one before.
    """
    first = predictions[0]
    seen = _seen(system, first)
    if seen is None:
        raise UserError(f"{system.folder}: this model has no attention to draw")
    for name, axis in first.axes.items():
        if axis.kind in SUFFIXES and first.attention is not None:  # self-attention is to tokens too: drawn as text
            place = _place(out, SUFFIXES[axis.kind], axis.kind)
            return place, _png(stacked([_over(system, one, name) for one in predictions]))
    if len(predictions) > 1:
        raise UserError("a drawing of tokens or features shows one input; a page shows several: -o page.html")
    columns, weights = seen
    along = "source" if first.attention is not None else "read before"
    title = f"{_said(first.source)} → {first.text}"
    place = _place(out, ".svg", next((axis.kind for axis in first.axes.values()), "text"))
    return place, alignment_svg(columns, first.tokens, weights, title, along)


def _seen(system: System, prediction: Prediction) -> tuple[Sequence[str], np.ndarray] | None:
    """What a token could look at, and the mean of all maps, (T, columns).

    That is the source; of one network over source and target, or a language model, all that it had read before.
    """
    if prediction.attention is not None:
        return prediction.labels, prediction.attention.mean(1)
    back = prediction.outputs[0].self_attention  # (L, H, T, P)
    if back is None:
        return None
    columns = read_before(prediction.labels, prediction.tokens, system.model.decoder.reads_source)
    return columns, back.mean((0, 1))


def _said(source: Raw) -> str:
    """An input in a line, cut where it is long: its tokens are in the drawing."""
    text = source if isinstance(source, str) else " · ".join(source.values())
    return text if len(text) <= LONGEST_TITLE else text[: LONGEST_TITLE - 1] + "…"


def _over(system: System, prediction: Prediction, name: str) -> Any:
    axis, source = prediction.axes[name], prediction.source
    path = source if isinstance(source, str) else source[name]
    weights, seen = _looked(prediction, name), system.modalities[name].tensor(path).numpy()
    stride = int(system.model.encoders[name].stride)  # type: ignore[arg-type]
    if axis.seconds is not None:
        return over_spectrogram(seen, weights, prediction.tokens, axis.seconds / stride, axis.seconds)
    assert axis.grid is not None
    return over_picture(seen, weights, axis.grid, prediction.tokens, title=Path(path).name, stride=stride)


def _looked(prediction: Prediction, name: str) -> np.ndarray:
    """(T, S): the mean over maps of the attention to one source."""
    assert prediction.attention is not None
    begin = 0
    for other, axis in prediction.axes.items():
        end = begin + len(axis.labels)
        if other == name:
            return prediction.attention.mean(1)[:, begin:end]
        begin = end
    raise KeyError(name)


def _place(out: Path | None, suffix: str, kind: str) -> Path:
    if out is None:
        return Path(f"alignment{suffix}")
    if out.suffix.lower() not in (suffix, ""):
        raise UserError(f"-o {out}: what is drawn for a source of kind {kind!r} is a {suffix} file; name it so")
    return out


def _png(picture: Any) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return stream.getvalue()
