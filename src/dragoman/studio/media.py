"""What a source that is a file looks or sounds like, for axes of attention to be laid over."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dragoman.contracts import Modality
from dragoman.studio.matrices import matrix
from dragoman.studio.records import Axis, Matrix, Media
from dragoman.types import Axis as Positions

MOST_FRAMES, MOST_FEATURES = 3000, 128  # of a spectrogram that is sent; longer ones are thinned
INLINE = 300_000  # bytes of a file that a one-file page carries

Address = Callable[[str], str]  # path of a file → where the page finds it


def axes(
    modalities: dict[str, Modality], raw: dict[str, str], positions: dict[str, Positions], strides: dict[str, int],
    address: Address,
) -> list[Axis]:  # fmt: skip
    """The sources behind each other, as they stand along the S axis of attention."""
    found: list[Axis] = []
    begin = 0
    for name, axis in positions.items():
        end = begin + len(axis.labels)
        media = media_of(modalities[name], raw[name], axis, strides[name], address)
        found.append(
            Axis(
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
    return found


def media_of(modality: Modality, raw: str, axis: Positions, stride: int, address: Address) -> Media | None:
    if not modality.is_file or not raw:
        return None
    width = height = seconds = spectrogram = reach = None
    if axis.grid is not None:
        sized: Any = modality
        height, width = sized.sizes(raw)
        reach = axis.grid[0] * stride / height, axis.grid[1] * stride / width
    else:
        frames = modality.tensor(raw).float().numpy()  # (S, D)
        spectrogram = _drawn(frames)
        seconds = None if axis.seconds is None else len(frames) * axis.seconds / stride
    return Media(url=address(raw), width=width, height=height, reach=reach, seconds=seconds, spectrogram=spectrogram)


def _drawn(frames: np.ndarray) -> Matrix:
    """From the 1st to the 99th percentile as 0 to 1: single peaks do not darken all else."""
    thin = frames[:: -(-len(frames) // MOST_FRAMES), :: -(-frames.shape[1] // MOST_FEATURES)]
    low, high = np.percentile(thin, [1, 99])
    return matrix((thin - low) / max(float(high - low), 1e-9), most=0)


def inlined(path: str) -> str:
    """A file as a data: address for one-file pages: pictures made small, other files as they are if small; else ""."""
    place = Path(path)
    kind = place.suffix.lower().lstrip(".")
    try:
        if kind in ("png", "jpg", "jpeg", "webp"):
            from PIL import Image, ImageOps

            with Image.open(place) as opened:
                picture = ImageOps.exif_transpose(opened).convert("RGB")
            picture.thumbnail((512, 512))
            out = io.BytesIO()
            picture.save(out, "JPEG", quality=85)
            return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode("ascii")
        if kind in ("wav", "flac", "ogg") and place.stat().st_size <= INLINE:
            return f"data:audio/{kind};base64," + base64.b64encode(place.read_bytes()).decode("ascii")
    except (OSError, ImportError, ValueError):
        return ""  # the views do without
    return ""
