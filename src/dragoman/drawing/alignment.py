"""An alignment as a picture: where the model looked in the source while it wrote each target token.

The picture is one self-contained SVG file. Text is drawn with the viewer's own fonts, so any script works, and the
numbers are tooltips. Colour is one hue from white to dark blue and differs in lightness alone, so that it can also be
read in print and by colour-blind people.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from html import escape

import numpy as np

# Lightness falls evenly from stop to stop.
COLOURS = ((255, 255, 255), (198, 219, 239), (107, 174, 214), (33, 113, 181), (8, 48, 107))
INK, FAINT, LINES = "#1b1f24", "#57606a", "#dfe3e8"
FONT = "font-family=\"system-ui, -apple-system, 'Segoe UI', 'Noto Sans', sans-serif\""
TEXT = 13  # pixels
LONGEST_LABEL, LONGEST_SENTENCE = 24, 48  # characters; the whole of it is in the tooltip
VISIBLE = {" ": "␣", "\u00a0": "⍽", "\u3000": "□", "\x7f": "␡"}


def visible(token: str) -> str:
    """Return the token with every character made visible that leaves no mark or that XML cannot hold."""
    shown = []
    for character in token:
        category = unicodedata.category(character)
        if character in VISIBLE:
            shown.append(VISIBLE[character])
        elif character < " ":
            shown.append(chr(0x2400 + ord(character)))  # the control pictures: ␀ ␉ ␊ ...
        elif category[0] in "CZ":
            shown.append(f"⟨{ord(character):04X}⟩")
        else:
            shown.append(character)
    if token and unicodedata.category(token[0])[0] == "M":
        shown.insert(0, "\u25cc")  # a lone accent or vowel sign needs something to sit on
    return "".join(shown) or "∅"


def colour(weight: float) -> str:
    """Return the colour of a weight: 0 is white, 1 is darkest."""
    place = min(max(weight, 0.0), 1.0) * (len(COLOURS) - 1)
    index = min(int(place), len(COLOURS) - 2)
    part = place - index
    mixed = (round(a + (b - a) * part) for a, b in zip(COLOURS[index], COLOURS[index + 1], strict=True))
    return "#{:02x}{:02x}{:02x}".format(*mixed)


def _label(token: str) -> str:
    text = _shown(token)
    most = LONGEST_SENTENCE if " " in text else LONGEST_LABEL
    return text if len(text) <= most else text[: most - 1] + "…"


def _shown(token: str) -> str:
    """Return the label of a position: a token, or several of them, whose spaces stay."""
    return visible_text(token) if " " in token.strip() else visible(token)


def _width(text: str) -> float:
    """Estimate how wide the text will be drawn, in pixels; the viewer's font is not known here."""
    ems = 0.0
    for character in text:
        if unicodedata.category(character) != "Mn":
            ems += 1.05 if unicodedata.east_asian_width(character) in "WF" else 0.62
    return ems * TEXT


def alignment_svg(
    source: Sequence[str],
    target: Sequence[str],
    weights: np.ndarray | Sequence[Sequence[float]],
    title: str = "",
    along: str = "source",
) -> str:
    """Draw a heat map of ``weights`` (T, S): target tokens down the left, the source (or ``along``) on top."""
    table = np.asarray(weights, dtype=float).reshape(len(target), -1) if len(target) else np.zeros((0, len(source)))
    if table.shape != (len(target), len(source)):
        raise ValueError(f"weights are {np.shape(weights)} for {len(target)} target and {len(source)} source tokens")
    if not np.isfinite(table).all():
        raise ValueError("weights must be finite numbers")

    columns, rows = [_label(token) for token in source], [_label(token) for token in target]
    widest = max(map(_width, columns), default=0.0)
    cell = 26 if max(len(source), len(target)) <= 60 else 16
    upright = [_width(text) <= cell for text in columns]  # single characters stand upright; longer labels are rotated
    left = 24 + max([*map(_width, rows), _width("target ↓")]) + 8
    top = 24 + (22 if title else 0) + 18 + (TEXT + 4 if all(upright) else widest + 8)
    wide, high = cell * len(source), cell * len(target)
    legend = 150
    width = max(left + wide + 24, left + legend + 24, 24 + _width(visible(title)) + 24)
    height = top + high + 56

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" {FONT} font-size="{TEXT}">',
        f"<title>{escape(visible_text(title) or 'alignment')}</title>",
        f'<rect class="page" width="{width:.0f}" height="{height:.0f}" fill="#ffffff"/>',
    ]
    if title:
        parts.append(f'<text x="24" y="32" font-weight="600" fill="{INK}">{escape(visible_text(title))}</text>')
    small = f'font-size="11" fill="{FAINT}"'
    parts.append(f'<text x="{left:.1f}" y="{24 + (22 if title else 0) + 8}" {small}>{escape(along)} →</text>')
    parts.append(f'<text x="{left - 8:.1f}" y="{top - 8:.1f}" text-anchor="end" {small}>target ↓</text>')

    for index, text in enumerate(columns):
        x = left + cell * (index + 0.5)
        if upright[index]:
            place = f'x="{x:.1f}" y="{top - 8:.1f}" text-anchor="middle"'
        else:
            place = f'transform="translate({x + TEXT / 3:.1f} {top - 8:.1f}) rotate(-90)"'
        parts.append(f'<text class="source" {place} fill="{INK}">{escape(text)}</text>')
    for index, text in enumerate(rows):
        y = top + cell * (index + 0.5) + TEXT / 3
        parts.append(
            f'<text class="target" x="{left - 8:.1f}" y="{y:.1f}" text-anchor="end" fill="{INK}">{escape(text)}</text>'
        )

    parts.append(f'<g stroke="{LINES}" stroke-width="1">')
    for i, token in enumerate(target):
        for j, from_token in enumerate(source):
            weight = float(table[i, j])
            parts.append(
                f'<rect class="cell" x="{left + cell * j:.1f}" y="{top + cell * i:.1f}" width="{cell}" height="{cell}" '
                f'fill="{colour(weight)}"><title>{escape(_shown(token))} ← {escape(_shown(from_token))}: '
                f"{weight:.3f}</title></rect>"
            )
    parts.append("</g>")

    y = top + high + 20
    steps = 30
    parts.append(f'<g class="legend" {small}>')
    for step in range(steps):
        x = left + legend * step / steps
        parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{legend / steps + 0.5:.1f}" height="8" '
            f'fill="{colour(step / (steps - 1))}"/>'
        )
    parts.append(
        f'<rect x="{left:.1f}" y="{y:.1f}" width="{legend}" height="8" fill="none" stroke="{LINES}"/>'
        f'<text x="{left:.1f}" y="{y + 22:.1f}">0</text>'
        f'<text x="{left + legend / 2:.1f}" y="{y + 22:.1f}" text-anchor="middle">attention</text>'
        f'<text x="{left + legend:.1f}" y="{y + 22:.1f}" text-anchor="end">1</text></g>'
    )
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def visible_text(text: str) -> str:
    """Make running text visible as ``visible`` does, but keep its spaces."""
    return " ".join(visible(word) for word in text.split(" ")) if text else ""
