"""Resampling, mel filters and the spectrogram, against what is known of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dragoman.modalities._signal import _filters, _ratio, frame_count, hertz, log_mel, mel, mel_filters, resample


def sine(frequency: float, rate: int, seconds: float = 0.5) -> np.ndarray:
    return np.sin(2 * math.pi * frequency * np.arange(int(rate * seconds)) / rate).astype(np.float32)


def noise(samples: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(samples).astype(np.float32)


RATES = [(8000, 16000), (16000, 8000), (44100, 16000), (11025, 16000), (48000, 16000), (9, 10), (11, 10)]


@pytest.mark.parametrize(("old", "new"), RATES)
def test_resampling_keeps_the_frequency_and_the_size_of_a_sine(old: int, new: int) -> None:
    per_second = old if old > 100 else old * 800  # speeds are ratios of rates
    new_per_second = new if new > 100 else new * 800
    found = resample(sine(1000, per_second), old, new)
    wanted = sine(1000, new_per_second)
    assert len(found) == math.ceil(len(sine(1000, per_second)) * new / old)
    inside = slice(200, min(len(found), len(wanted)) - 200)  # ends miss the neighbours that they are a sum of
    assert np.allclose(found[inside], wanted[inside], atol=2e-3)


@pytest.mark.parametrize(("old", "new"), [(22254, 16000), (16000, 22254), (16001, 16000), (15999, 16000)])
def test_rates_that_share_no_divisor_need_little_memory(old: int, new: int) -> None:
    found, wanted = resample(sine(1000, old), old, new), sine(1000, new)
    assert len(found) == math.ceil(len(sine(1000, old)) * new / old)
    inside = slice(200, min(len(found), len(wanted)) - 200)
    # one part in 16,000 of the rate may be lost, which half a second of 1,000 Hz turns into a fifth of a radian
    assert np.allclose(found[inside], wanted[inside], atol=0.25 if abs(old - new) == 1 else 5e-3)
    filters, _, _ = _filters(*_ratio(new, old))
    assert filters.size < 2_000_000


def test_what_the_new_rate_cannot_hold_is_silenced() -> None:
    """6 kHz at a rate of 8 kHz would sound as 2 kHz."""
    found = resample(sine(6000, 16000), 16000, 8000)[100:-100]
    assert np.sqrt((found**2).mean()) < 1e-3
    passed = resample(sine(3000, 16000), 16000, 8000)[100:-100]
    assert np.sqrt((passed**2).mean()) == pytest.approx(0.5**0.5, 1e-2)


def test_there_and_back_again() -> None:
    slow = resample(noise(4000), 8000, 32000)  # nothing above 4 kHz
    again = resample(resample(slow, 32000, 22050), 22050, 32000)[: len(slow)]
    assert np.abs(again - slow)[300:-300].max() < 0.05 * np.abs(slow).max()


def test_one_rate_changes_nothing_and_nothing_stays_nothing() -> None:
    wave = noise(100)
    assert resample(wave, 8000, 8000) is wave
    assert len(resample(np.zeros(0, np.float32), 8000, 16000)) == 0
    assert len(resample(np.ones(1, np.float32), 8000, 16000)) == 2


def test_mel_scale() -> None:
    assert float(mel(1000.0)) == pytest.approx(1000.0, abs=0.1)  # by definition
    assert np.allclose(hertz(mel(np.array([20.0, 440.0, 7999.0]))), [20.0, 440.0, 7999.0])


@pytest.mark.parametrize(("count", "rate", "size"), [(40, 8000, 256), (80, 16000, 512), (23, 16000, 1024)])
def test_triangles_stand_at_their_centres_and_add_up_to_one(count: int, rate: int, size: int) -> None:
    filters = mel_filters(count, rate, size, 20.0, rate / 2)
    frequencies = np.arange(size // 2 + 1) * rate / size
    centres = hertz(np.linspace(mel(20.0), mel(rate / 2), count + 2))[1:-1]
    inside = (frequencies >= centres[0]) & (frequencies <= centres[-1])
    assert np.allclose(filters.sum(1)[inside], 1.0)
    assert (filters >= 0).all() and (filters <= 1).all()
    upper = filters[:, count // 2 :]  # wide enough to have bins on both sides
    assert np.abs(frequencies[upper.argmax(0)] - centres[count // 2 :]).max() <= rate / size
    assert filters[frequencies < 20.0].sum() == 0


@pytest.mark.parametrize("rate", [8000, 16000])
def test_a_tone_lights_up_its_own_filter(rate: int) -> None:
    mels = 40
    frames = log_mel(sine(1000, rate), rate, mels=mels, window=rate // 40, hop=rate // 100, low=20.0, high=rate / 2)
    centres = hertz(np.linspace(mel(20.0), mel(rate / 2), mels + 2))[1:-1]
    assert frames.shape == (50, mels)
    assert set(frames[2:-2].argmax(1).tolist()) == {int(np.abs(centres - 1000).argmin())}


def test_frames_stand_where_their_sound_is() -> None:
    wave = np.zeros(16000, np.float32)
    wave[8000:8160] = noise(160)  # the hop of frame 50
    frames = log_mel(wave, 16000, mels=80, window=400, hop=160, low=20.0, high=8000.0)
    assert int(frames.mean(1).argmax()) == 50


@pytest.mark.parametrize("samples", [0, 1, 79, 80, 81, 200, 8000, 8001])
def test_never_empty_and_as_many_frames_as_said(samples: int) -> None:
    frames = log_mel(noise(samples), 8000, mels=40, window=200, hop=80, low=20.0, high=4000.0)
    assert frames.shape == (frame_count(samples, 80), 40)
    assert np.isfinite(frames).all() and frames.dtype == np.float32


def test_every_filter_has_a_bin() -> None:
    """Many narrow filters need a finer transform."""
    frames = log_mel(noise(16000), 16000, mels=160, window=400, hop=160, low=20.0, high=8000.0)
    assert (frames.mean(0) > -10).all()


def exact_log_mel(wave: np.ndarray, rate: int, mels: int, window: int, hop: int) -> np.ndarray:
    """By definition, in float64: every frame in the middle of its transform, and the transform as a sum."""
    frames, size = frame_count(len(wave), hop), 1 << (window - 1).bit_length()
    hann = np.zeros(size)
    hann[(size - window) // 2 :][:window] = 0.5 - 0.5 * np.cos(2 * math.pi * np.arange(window) / window)
    padded = np.pad(wave.astype(np.float64), (size, 2 * size))
    begins = np.arange(frames) * hop - (size - hop) // 2 + size
    turns = np.exp(-2j * math.pi * np.outer(np.arange(size), np.arange(size // 2 + 1)) / size)
    spectrum = (padded[begins[:, None] + np.arange(size)] * hann) @ turns
    return np.log(np.maximum(np.abs(spectrum) ** 2 @ mel_filters(mels, rate, size, 20.0, rate / 2), 1e-7))


@pytest.mark.parametrize(
    ("rate", "mels", "window", "hop"), [(8000, 40, 200, 80), (16000, 80, 400, 160), (8000, 20, 91, 90)]
)
def test_log_mel_is_what_its_definition_gives(rate: int, mels: int, window: int, hop: int) -> None:
    wave = noise(3001)
    found = log_mel(wave, rate, mels=mels, window=window, hop=hop, low=20.0, high=rate / 2)
    assert np.allclose(found, exact_log_mel(wave, rate, mels, window, hop), atol=1e-5)


def test_resampling_is_what_its_definition_gives() -> None:
    """Every new sample is a sum of old ones, weighted by a windowed sinc around its time."""
    wave, (old, new) = noise(400), (9, 10)
    found = resample(wave, old, new)
    band = 0.95 * min(1, new / old)
    for index in range(100, 300):
        times = (np.arange(len(wave)) - index * old / new) * band  # in zero crossings
        window = np.cos(math.pi / 2 * np.clip(times / 16, -1, 1)) ** 2
        weights = np.sinc(times) * window
        assert found[index] == pytest.approx(float(wave @ weights / weights.sum()), abs=1e-5)
