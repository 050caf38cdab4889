"""Where a model looked, drawn as its source is: text beside text, light over a picture, bands below a sound."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dragoman.errors import UserError
from dragoman.overlays import over_picture
from dragoman.overlays_sound import over_spectrogram
from dragoman.pictures import alignment_svg

if TYPE_CHECKING:
    from dragoman.predictions import Prediction
    from dragoman.system import System

SUFFIXES = {
    "image": ".png",
    "speech": ".png",
}  # of what is drawn over a source of this kind; others are drawn as text, .svg


def draw(system: System, prediction: Prediction, out: Path | None) -> tuple[Path, bytes | str]:
    """Where the drawing goes (by default alignment.svg or .png, as the source needs), and what is to be written there.

    Of several sources the first that is drawn over is shown, or all of them as text.
    """
    attention = prediction.attention
    if attention is None:
        raise UserError(f"{system.folder}: this model has no attention to draw")
    weights = attention.mean(1)  # (T, S), the mean over maps
    begin = 0
    for name, axis in prediction.axes.items():
        end = begin + len(axis.labels)
        if axis.kind in SUFFIXES:
            place = _place(out, SUFFIXES[axis.kind], axis.kind)
            return place, _png(_over(system, prediction, name, weights[:, begin:end]))
        begin = end
    title = f"{prediction.source} → {prediction.text}"
    return _place(out, ".svg", "text"), alignment_svg(prediction.labels, prediction.tokens, weights, title)


def _over(system: System, prediction: Prediction, name: str, weights: np.ndarray) -> Any:
    axis, source = prediction.axes[name], prediction.source
    seen = system.modalities[name].tensor(source if isinstance(source, str) else source[name]).numpy()
    stride = int(system.model.encoders[name].stride)  # type: ignore[arg-type]
    if axis.seconds is not None:
        return over_spectrogram(seen, weights, prediction.tokens, axis.seconds / stride, axis.seconds)
    assert axis.grid is not None
    return over_picture(seen, weights, axis.grid, prediction.tokens, stride=stride)


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
