"""Attention over a picture: the light falls where the weight is, on every panel, whatever the sizes."""

from __future__ import annotations

import numpy as np
import pytest

from dragoman.drawing.picture import MARGIN, PANEL, TITLE, over_picture, smooth


def panels(sheet: np.ndarray, high: int, wide: int, count: int, columns: int = 6) -> list[np.ndarray]:
    """The panels cut out of a sheet again."""
    found = []
    for index in range(count):
        left = MARGIN + index % columns * (wide + MARGIN)
        top = MARGIN + index // columns * (high + TITLE + MARGIN) + TITLE
        found.append(sheet[top : top + high, left : left + wide].astype(float))
    return found


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("height", "width", "stride"), [(32, 32, 8), (20, 30, 8), (48, 24, 4), (200, 300, 32)])
def test_light_falls_on_the_region_that_was_looked_at(height: int, width: int, stride: int, channels: int) -> None:
    rows, columns = -(-height // stride), -(-width // stride)
    picture = np.full((height, width, channels), 120, dtype=np.uint8)
    places = [0, columns - 1, (rows - 1) * columns, rows * columns // 2]
    attention = np.eye(rows * columns)[places]
    sheet = np.asarray(over_picture(picture, attention, (rows, columns), [*"abcd"], stride=stride))
    factor = max(1, -(-PANEL // max(height, width)))
    assert max(height, width) * factor >= PANEL  # a small picture is enlarged
    first, *others = panels(sheet, height * factor, width * factor, 5)
    assert (first == 120).all()  # the picture itself comes first
    for place, panel in zip(places, others, strict=True):
        row, column = divmod(place, columns)
        assert (panel.max((0, 1)) > 120).any()
        y, x = np.unravel_index(panel[..., 0].argmax(), panel.shape[:2])
        assert row * stride * factor <= y < (row + 1) * stride * factor
        assert column * stride * factor <= x < (column + 1) * stride * factor
        away = panel[(row * stride + 2 * stride) * factor :, :, 0]
        assert away.size == 0 or away.max() < 90  # two regions further it is dim


def test_the_same_attention_everywhere_lights_everything() -> None:
    picture = np.full((16, 16, 3), 100, dtype=np.uint8)
    sheet = np.asarray(over_picture(picture, np.full((1, 4), 0.25), (2, 2), ["x"]))
    _, panel = panels(sheet, 160, 160, 2)
    assert np.ptp(panel[..., 0]) <= 1 and panel[0, 0, 0] > 100


def test_upsampling_has_no_steps() -> None:
    weights = np.array([[0.0, 1.0], [0.0, 0.0]])
    large = smooth(weights, 80, 80)
    assert large.shape == (80, 80) and large.min() >= 0
    assert np.abs(np.diff(large, axis=0)).max() < 0.06 and np.abs(np.diff(large, axis=1)).max() < 0.06
    assert large[20, 60] == pytest.approx(1.0, abs=0.15)


def test_many_tokens_fill_several_lines_and_long_ones_are_cut() -> None:
    tokens = [f"token{number}" * (1 + number % 5) for number in range(14)] + [" ", "</s>"]
    sheet = over_picture(np.zeros((8, 8, 3), np.uint8), np.full((16, 1), 1.0), (1, 1), tokens, stride=8)
    assert sheet.size == (MARGIN + 6 * (PANEL + MARGIN), MARGIN + 3 * (PANEL + TITLE + MARGIN))


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="2 tokens and 2×2 regions"):
        over_picture(np.zeros((8, 8, 3), np.uint8), np.zeros((2, 3)), (2, 2), ["a", "b"])
