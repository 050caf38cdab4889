"""Attention laid over a picture, with one panel per token. Pillow draws it; nothing else is needed.

What a token looked at keeps its colours and is lit, the rest is dim and grey. Light is scaled to the brightest place of
each panel, whose weight is printed below the token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dragoman.drawing.alignment import visible
from dragoman.errors import MissingExtra

if TYPE_CHECKING:
    from PIL.Image import Image

PANEL = 160  # pixels of a panel's longest side, at least: small pictures are enlarged
COLUMNS = 6  # panels in a line
MARGIN, TITLE, LETTERS = 12, 40, 15
INK, FAINT, PAGE = (31, 35, 40), (101, 109, 118), (255, 255, 255)
LIGHT = np.array([255.0, 214.0, 64.0])
DIM, GLOW = 0.4, 0.25  # brightness of what was not looked at; share of light in what was


def over_picture(
    picture: np.ndarray,
    attention: np.ndarray,
    grid: tuple[int, int],
    tokens: Sequence[str],
    title: str = "",
    stride: int | None = None,
) -> Image:
    """Draw a sheet: the picture (H, W, 3 or 1), then one panel per token with ``attention`` (T, S) over it.

    ``stride`` is the side of a region in pixels of the picture, where the last ones may reach beyond its edges; without
    it the regions divide the picture evenly.
    """
    rows, columns = grid
    weights = np.asarray(attention, dtype=np.float32)
    if weights.shape != (len(tokens), rows * columns):
        raise ValueError(f"attention is {weights.shape} for {len(tokens)} tokens and {rows}×{columns} regions")
    if picture.shape[2] == 1:
        picture = np.repeat(picture, 3, 2)
    height, width = picture.shape[:2]
    factor = max(1, -(-PANEL // max(height, width)))
    whole = (rows * stride, columns * stride) if stride else (height, width)
    large = np.kron(picture, np.ones((factor, factor, 1), dtype=np.uint8))  # pixels stay pixels
    panels = [(title or "the picture", f"{width} by {height} pixels", large)]
    for token, row in zip(tokens, weights, strict=True):
        looked = smooth(row.reshape(rows, columns), whole[0] * factor, whole[1] * factor)
        looked = looked[: height * factor, : width * factor]
        panels.append((visible(token), f"at most {row.max():.2f}", lit(large, looked)))
    return lay_out(panels)


def smooth(weights: np.ndarray, height: int, width: int) -> np.ndarray:
    """Interpolate weights (rows, columns) to (height, width) without steps between regions, and clip them at 0."""
    pillow = _pillow()
    field = pillow.fromarray(np.ascontiguousarray(weights, dtype=np.float32))
    return np.asarray(field.resize((width, height), pillow.Resampling.BICUBIC)).clip(0.0, None)


def lit(picture: np.ndarray, looked: np.ndarray) -> np.ndarray:
    """Return the picture (H, W, 3) lit where ``looked`` (H, W) is large."""
    share = (looked / max(float(looked.max()), 1e-9))[..., None]
    grey = picture.mean(2, keepdims=True) * DIM + 20
    bright = picture * (1 - GLOW) + LIGHT * GLOW
    return (grey * (1 - share) + bright * share).round().clip(0, 255).astype(np.uint8)


def lay_out(panels: Sequence[tuple[str, str, np.ndarray]], columns: int = COLUMNS) -> Image:
    """Lay out panels of one size (title, small print, pixels) line by line on one page."""
    pillow = _pillow()
    from PIL import ImageDraw

    high, wide = panels[0][2].shape[:2]
    columns = min(columns, len(panels))
    lines = -(-len(panels) // columns)
    across, down = wide + MARGIN, high + TITLE + MARGIN
    page = pillow.new("RGB", (MARGIN + columns * across, MARGIN + lines * down), PAGE)
    draw = ImageDraw.Draw(page)
    for index, (title, small, pixels) in enumerate(panels):
        left, top = MARGIN + index % columns * across, MARGIN + index // columns * down
        for text, size, ink, below in ((title, LETTERS, INK, 0), (small, LETTERS - 4, FAINT, LETTERS + 5)):
            font = _font(size)
            draw.text((left, top + below), _fitting(text, font, wide), fill=ink, font=font)
        page.paste(pillow.fromarray(pixels), (left, top + TITLE))
    return page


def stacked(sheets: Sequence[Image]) -> Image:
    """Put the sheets below each other on one page."""
    if len(sheets) == 1:
        return sheets[0]
    page = _pillow().new("RGB", (max(sheet.width for sheet in sheets), sum(sheet.height for sheet in sheets)), PAGE)
    top = 0
    for sheet in sheets:
        page.paste(sheet, (0, top))
        top += sheet.height
    return page


def _fitting(text: str, font: Any, width: int) -> str:
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "...") > width:
        text = text[:-1]
    return text + "..."


def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise MissingExtra("Pillow", "images", "drawing over pictures") from None
    return Image
