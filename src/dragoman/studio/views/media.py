"""The axis of attention with its pictures and spectrograms, which attention is drawn over."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

from dragoman.inference.system import System
from dragoman.parts import kind_of
from dragoman.studio import records
from dragoman.studio.inspection import Inspection
from dragoman.studio.views.matrices import pack_weights
from dragoman.types import Axis

MAX_FRAMES, MAX_FEATURES = 3000, 128  # of a spectrogram; longer and wider ones are thinned out
MAX_INLINE = 300_000  # bytes of a recording that a one-file page contains
THUMBNAIL = (512, 512)  # pixels of a picture in a one-file page
SMALL_THUMBNAIL = (72, 72)  # pixels of a picture in a row of a table there
CONTENT_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".wav": "audio/wav",
    ".flac": "audio/flac",
    ".ogg": "audio/ogg",
}

Locate: TypeAlias = Callable[[str], str]  # path of a file → URL under which the page finds it, or ""
Link: TypeAlias = Callable[[str, str], records.SourceFile]  # path of a file and its kind → how the page finds it


def describe_source(
    system: System, source: Mapping[str, str], link: Link
) -> tuple[dict[str, str], dict[str, records.SourceFile]]:
    """Return the sources of a row as texts, and those that are files.

    Of a file, the text is its name: paths of this machine are not shown, and are not in a page that is sent to others.
    """
    files = {
        name: link(source[name], kind_of(system.recipe.sources[name].modality))
        for name, modality in system.modalities.items()
        if modality.is_file and source[name]
    }
    return {name: Path(text).name if name in files else text for name, text in source.items()}, files


def link_thumbnail(path: str, kind: str) -> records.SourceFile:
    """Describe a file for a table of a one-file page: a picture is a small one in it, others are named only."""
    url = make_data_url(path, SMALL_THUMBNAIL) if kind == "image" else ""
    return records.SourceFile(id="", kind=kind, url=url)


def link_nothing(_: str, kind: str) -> records.SourceFile:
    """Describe a file by its kind alone."""
    return records.SourceFile(id="", kind=kind, url="")


def describe_axes(inspection: Inspection, locate: Locate) -> list[records.Axis]:
    """Describe the sources one after the other, as they lie along the S axis of attention."""
    arrays = inspection.session.file_arrays(inspection.prepared)
    axes: list[records.Axis] = []
    begin = 0
    for name, axis in inspection.prediction.axes.items():
        end = begin + len(axis.labels)
        path = inspection.prepared.texts[name]
        media = None
        if name in arrays and path:
            media = _describe_media(arrays[name], axis, inspection.system.strides[name], locate(path))
        axes.append(
            records.Axis(
                name=name,
                kind=axis.kind,
                begin=begin,
                end=end,
                labels=list(axis.labels),
                grid=axis.grid,
                seconds=axis.seconds,
                media=media,
            )
        )
        begin = end
    return axes


def _describe_media(array: np.ndarray, axis: Axis, stride: int, url: str) -> records.Media:
    """Describe a file by what the model reads of it: a picture (H, W, C) or a sequence (S, D)."""
    width = height = seconds = spectrogram = reach = None
    if axis.grid is not None:
        height, width = array.shape[:2]
        reach = axis.grid[0] * stride / height, axis.grid[1] * stride / width
    else:
        spectrogram = _draw_spectrogram(array.astype(np.float32))
        seconds = None if axis.seconds is None else len(array) * axis.seconds / stride
    return records.Media(url=url, width=width, height=height, reach=reach, seconds=seconds, spectrogram=spectrogram)


def _draw_spectrogram(frames: np.ndarray) -> records.Matrix:
    """Scale frames (S, D) so that 0 and 1 are their 1st and 99th percentile.

    With the minimum and maximum, single peaks would darken everything else.
    """
    thinned = frames[:: -(-len(frames) // MAX_FRAMES), :: -(-frames.shape[1] // MAX_FEATURES)]
    low, high = np.percentile(thinned, [1, 99])
    return pack_weights((thinned - low) / max(float(high - low), 1e-9), max_fine_cells=0)


def make_data_url(path: str, size: tuple[int, int] = THUMBNAIL) -> str:
    """Return a file as a data URL for a one-file page.

    A picture is made small, a short recording is taken as it is. A file that is too large, of
    another kind or unreadable has the URL "", and the page shows no media.
    """
    file = Path(path)
    content_type = CONTENT_TYPES.get(file.suffix.lower(), "")
    try:
        if content_type.startswith("image/"):
            content_type, data = "image/jpeg", _make_thumbnail(file, size)
        elif content_type.startswith("audio/") and file.stat().st_size <= MAX_INLINE:
            data = file.read_bytes()
        else:
            return ""
    except (OSError, ImportError, ValueError):
        return ""
    return f"data:{content_type};base64,{base64.b64encode(data).decode('ascii')}"


def _make_thumbnail(file: Path, size: tuple[int, int]) -> bytes:
    from PIL import Image, ImageOps

    with Image.open(file) as opened:
        picture = ImageOps.exif_transpose(opened).convert("RGB")
    picture.thumbnail(size)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=85)
    return buffer.getvalue()
