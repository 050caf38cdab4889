"""Draw attention as its source suggests: tokens beside tokens, light over a picture, bands below a spectrogram."""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dragoman.data.modality import Modality
from dragoman.drawing.alignment import alignment_svg
from dragoman.drawing.picture import over_picture, stacked
from dragoman.drawing.sound import over_spectrogram
from dragoman.errors import UserError
from dragoman.files import write_atomically
from dragoman.parts import kind_of
from dragoman.types import Axis

LONGEST_TITLE = 100  # characters of the input


@dataclass(frozen=True)
class DrawnSource:
    """A source that is a file, as it is drawn over."""

    axis: Axis
    array: np.ndarray  # (H, W, C) pixels, or (S, D) frames
    path: str
    stride: int  # positions of the array in one state of the encoder
    weights: np.ndarray  # (T, states): the mean over all maps of the attention to this source

    @property
    def can_be_drawn_over(self) -> bool:
        """Tell whether this is a picture or a recording. Other files are drawn as labels."""
        return self.axis.grid is not None or self.axis.seconds is not None


@dataclass(frozen=True)
class AttentionView:
    """Where each token of one output looked."""

    source: str  # the input, for the title
    output: str
    tokens: Sequence[str]
    columns: Sequence[str]  # what a token could look at
    weights: np.ndarray  # (T, columns)
    along: str  # what the columns are, in words
    kind: str  # of the first source: "text", "image", …
    files: Mapping[str, DrawnSource] = field(default_factory=dict)  # by source


@dataclass(frozen=True, repr=False)
class Drawing:
    """A drawing that a notebook shows, and that can be saved."""

    content: bytes | str  # of a PNG or an SVG file

    def __repr__(self) -> str:
        return f"Drawing({'SVG' if isinstance(self.content, str) else 'PNG'}, {len(self.content):,} bytes)"

    def save(self, path: str | Path) -> Path:
        """Write the drawing into a file and return its path."""
        write_atomically(Path(path), self.content)
        return Path(path)

    def to_html(self) -> str:
        """Return the drawing as HTML that loads nothing else."""
        if isinstance(self.content, str):
            return self.content
        return f'<img alt="attention" src="data:image/png;base64,{base64.b64encode(self.content).decode()}">'

    def _repr_html_(self) -> str:
        return self.to_html()


def draw(views: Sequence[AttentionView], out: Path | None = None) -> tuple[Path, bytes | str]:
    """Return where the drawing goes, and what is to be written there.

    By default the place is alignment.svg, or .png for a picture or a recording. Of several sources the first that can
    be drawn over is shown, or else all of them as labels. Several pictures or recordings make one sheet, each below the
    one before.
    """
    first = views[0]
    for name, source in first.files.items():
        if source.can_be_drawn_over:
            path = _checked_path(out, ".png", source.axis.kind)
            return path, _png(stacked([_draw_over(view.files[name], view.tokens) for view in views]))
    if len(views) > 1:
        raise UserError("a drawing of tokens or features shows one input; a page shows several: -o page.html")
    title = f"{_shortened(first.source)} → {first.output}"
    path = _checked_path(out, ".svg", first.kind)
    return path, alignment_svg(first.columns, first.tokens, first.weights, title, first.along)


def _draw_over(source: DrawnSource, tokens: Sequence[str]) -> Any:
    axis = source.axis
    if axis.seconds is not None:
        return over_spectrogram(source.array, source.weights, tokens, axis.seconds / source.stride, axis.seconds)
    assert axis.grid is not None
    title = Path(source.path).name
    return over_picture(source.array, source.weights, axis.grid, tokens, title=title, stride=source.stride)


def _shortened(text: str) -> str:
    """Return a title that fits: the tokens themselves are in the drawing."""
    return text if len(text) <= LONGEST_TITLE else text[: LONGEST_TITLE - 1] + "…"


def refuse_suffix(out: Path, modalities: Mapping[str, Modality], has_attention: bool | None = None) -> None:
    """Refuse a file name that no drawing of these sources can have, before anything is computed.

    ``has_attention`` is None as long as the model is not loaded: without attention, nothing is drawn over a source.
    """
    over = [each for each in modalities.values() if each.is_drawn_over]
    shown = over or list(modalities.values())
    kind = kind_of(shown[0].config) if shown else "text"
    if not over or has_attention is False:
        _checked_path(out, ".svg", kind)
    elif has_attention or out.suffix.lower() != ".svg":
        _checked_path(out, ".png", kind)


def _checked_path(out: Path | None, suffix: str, kind: str) -> Path:
    if out is None:
        return Path(f"alignment{suffix}")
    if out.suffix.lower() not in (suffix, ""):
        raise UserError(
            f"{out}: the drawing of a source of kind {kind!r} is a {suffix} file; name it {out.with_suffix(suffix)}"
        )
    return out


def _png(picture: Any) -> bytes:
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return stream.getvalue()
