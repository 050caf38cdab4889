"""Attention over a recording: the spectrogram on top, and below it one band per token, along the same seconds.

A band is dark where the token's attention was, scaled to its darkest place; weight and time are printed beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dragoman.drawing.alignment import COLOURS, visible
from dragoman.errors import MissingExtra

if TYPE_CHECKING:
    from PIL.Image import Image

WIDE, HIGH = 900, 180  # pixels of the spectrogram; long recordings are squeezed, short ones stretched
BAND, GAP, LEFT, RIGHT, MARGIN, LETTERS = 22, 4, 90, 120, 12, 13
INK, FAINT, PAGE = (31, 35, 40), (101, 109, 118), (255, 255, 255)
STEPS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)  # seconds between marks
MOST_MARKS = 12


def over_spectrogram(
    frames: np.ndarray, attention: np.ndarray, tokens: Sequence[str], frame_seconds: float, state_seconds: float
) -> Image:
    """Draw ``attention`` (T, S) below the spectrogram ``frames`` (frames, mels), given their durations."""
    weights = np.asarray(attention, dtype=np.float32)
    if len(weights) != len(tokens):
        raise ValueError(f"attention is {weights.shape} for {len(tokens)} tokens")
    pillow, draw_on, font = _pillow()
    seconds = len(frames) * frame_seconds
    bands = MARGIN + HIGH + 2 * LETTERS + MARGIN  # where they begin
    page = pillow.new("RGB", (LEFT + WIDE + RIGHT, bands + len(tokens) * (BAND + GAP) + MARGIN), PAGE)
    draw = draw_on(page)
    low, high = np.percentile(frames, [2, 99.5])
    loud = (np.asarray(frames, dtype=np.float32).T[::-1] - low) / max(high - low, 1e-6)  # low pitch below
    page.paste(_coloured(pillow, loud, WIDE, HIGH), (LEFT, MARGIN))
    _marks(draw, font, seconds)
    times = (np.arange(WIDE) + 0.5) / WIDE * seconds
    states = np.minimum((times / state_seconds).astype(int), weights.shape[1] - 1)  # under each column of pixels
    for index, (token, row) in enumerate(zip(tokens, weights, strict=True)):
        top = bands + index * (BAND + GAP)
        strength = row[states] / max(float(row.max()), 1e-9)
        page.paste(_coloured(pillow, strength[None], WIDE, BAND), (LEFT, top))
        draw.rectangle((LEFT, top, LEFT + WIDE - 1, top + BAND - 1), outline=(223, 227, 232))
        label, middle = visible(token)[:12], top + (BAND - LETTERS) // 2 - 1
        draw.text((LEFT - 8 - font.getlength(label), middle), label, fill=INK, font=font)
        at = (int(row.argmax()) + 0.5) * state_seconds
        draw.text((LEFT + WIDE + 8, middle), f"{row.max():.2f} at {min(at, seconds):.2f} s", fill=FAINT, font=font)
    return page


def _marks(draw: Any, font: Any, seconds: float) -> None:
    """Draw the time axis below the spectrogram."""
    step = next((step for step in STEPS if seconds / step <= MOST_MARKS), STEPS[-1])
    bottom = MARGIN + HIGH
    for index in range(int(seconds / step + 1e-9) + 1):
        x = LEFT + round(index * step / seconds * (WIDE - 1))
        draw.line((x, bottom, x, bottom + 4), fill=FAINT)
        label = f"{index * step:.2f}".rstrip("0").rstrip(".") + " s"
        draw.text((x - font.getlength(label) / 2, bottom + 6), label, fill=FAINT, font=font)


def _coloured(pillow: Any, values: np.ndarray, width: int, height: int) -> Any:
    """Return values (rows, columns) between 0 and 1 as colours from white to dark, stretched to so many pixels."""
    stops = np.array(COLOURS, dtype=np.float32)
    place = np.clip(values, 0.0, 1.0) * (len(stops) - 1)
    parts = [np.interp(place, np.arange(len(stops)), stops[:, channel]) for channel in range(3)]
    picture = pillow.fromarray(np.stack(parts, -1).round().astype(np.uint8))
    return picture.resize((width, height), pillow.Resampling.NEAREST)


def _pillow() -> tuple[Any, Any, Any]:
    try:
        from PIL import Image, ImageDraw, ImageFont
    except ImportError:
        raise MissingExtra("Pillow", "images", "drawing over a recording") from None
    return Image, ImageDraw.Draw, ImageFont.load_default(LETTERS)
