"""Attention below a spectrogram: bands are dark where the weights are, along the seconds of the sound."""

from __future__ import annotations

import numpy as np
import pytest

from dragoman.drawing.sound import BAND, HIGH, LEFT, MARGIN, WIDE, over_spectrogram


def band(picture: np.ndarray, index: int) -> np.ndarray:
    """(WIDE,) how dark the middle of a token's band is, between 0 and 255."""
    bands = np.flatnonzero((picture[:, LEFT] == (223, 227, 232)).all(1))  # the left edge of every frame
    rows = bands[(bands > MARGIN + HIGH)].reshape(-1, BAND)
    return 255 - picture[rows[index, BAND // 2], LEFT : LEFT + WIDE].mean(1)


@pytest.mark.parametrize("frames", [40, 41, 47, 48])
def test_a_token_that_listened_to_one_state_is_dark_there_alone(frames: int) -> None:
    """Also where the last state stands for fewer frames than the others."""
    states = -(-frames // 8)
    attention = np.eye(states, dtype=np.float32)
    sound = np.random.default_rng(1).normal(size=(frames, 20))
    picture = np.asarray(over_spectrogram(sound, attention, [str(i) for i in range(states)], 0.01, 0.08))
    for index in range(states):
        dark = np.flatnonzero(band(picture, index)[1:-1] > 150) + 1
        begin, end = index * 8 / frames * WIDE, min(1.0, (index + 1) * 8 / frames) * WIDE
        assert abs(dark[0] - begin) <= 2 and abs(dark[-1] + 1 - end) <= 2
        assert len(dark) == dark[-1] - dark[0] + 1


def test_loud_is_dark_and_low_is_below() -> None:
    sound = np.zeros((100, 20))
    sound[50:, :5] = 1.0  # low pitches, in the second half
    picture = np.asarray(over_spectrogram(sound, np.ones((1, 13)) / 13, ["a"], 0.01, 0.08))
    shown = 255 - picture[MARGIN : MARGIN + HIGH, LEFT : LEFT + WIDE].mean(2)
    quarters = [[shown[r : r + HIGH // 2, c : c + WIDE // 2].mean() for c in (0, WIDE // 2)] for r in (0, HIGH // 2)]
    assert np.argmax(quarters) == 3 and quarters[0][0] == 0


def test_silence_one_frame_and_strange_tokens_can_be_drawn() -> None:
    picture = over_spectrogram(np.zeros((1, 4)), np.ones((2, 1)), [" ", "a very long token indeed"], 0.01, 0.08)
    assert picture.size[0] > WIDE
    with pytest.raises(ValueError, match="2 tokens"):
        over_spectrogram(np.zeros((1, 4)), np.ones((1, 1)), ["a", "b"], 0.01, 0.08)
