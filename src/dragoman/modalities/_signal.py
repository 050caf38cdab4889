"""From waves to log-mel frames: resampling, mel filters, the spectrogram. There are no files here.

All of it is computed in float32, as torch would: numpy keeps that precision in its transforms since
version 2.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np

ZEROS = 16  # zero crossings on each side of the resampling filter: more is steeper and slower
ROLL_OFF = 0.95  # where the filter begins to fall, as a share of the highest frequency that the new rate can hold
MOST_FILTERS = 1000  # a ratio of rates that needs more filters is replaced by the nearest simpler one
QUIETEST = 1e-7  # energy of a filter; about the rounding of 16-bit samples, so that digital silence is no outlier
BLOCK = 1 << 18  # values of a block of rows that is computed at once: it stays in the processor's cache


def resample(wave: np.ndarray, old: int, new: int) -> np.ndarray:
    """Resample (N,) at the rate ``old`` to (ceil(N * new / old),) at the rate ``new``.

    Band-limited interpolation (Smith & Gossett 1984): every new sample is a sum of old ones around
    it, weighted by a windowed sinc, which removes what the new rate cannot hold. With new / old = u
    / d in lowest terms there are only u different filters, which move on by d old samples together:
    a matrix product.
    """
    if old == new or not len(wave):
        return wave
    up, down = _ratio(new, old)
    filters, reach, step = _filters(up, down)
    length = -(-len(wave) * new // old)
    padded = np.pad(wave, (reach, len(filters) - reach))
    windows = np.lib.stride_tricks.sliding_window_view(padded, len(filters))[::step]  # (N / step, taps)
    resampled = _product(windows, filters).reshape(-1)[:length]
    return np.pad(resampled, (0, length - len(resampled)))  # where the simpler ratio is a little smaller


def _product(windows: np.ndarray, filters: np.ndarray) -> np.ndarray:
    """Multiply (rows, taps) by (taps, outputs).

    The rows overlap in memory, so they are copied a block at a time.
    """
    product = np.empty((len(windows), filters.shape[1]), np.float32)
    step = max(1, BLOCK // len(filters))
    for begin in range(0, len(windows), step):
        block = slice(begin, begin + step)
        np.matmul(np.ascontiguousarray(windows[block]), filters, out=product[block])
    return product


def _ratio(new: int, old: int) -> tuple[int, int]:
    """Return u and d: new / old in lowest terms, or close to it with neither above the limit."""
    if new > old:
        down, up = _ratio(old, new)
        return up, down
    ratio = Fraction(new, old).limit_denominator(MOST_FILTERS)
    return max(1, ratio.numerator), ratio.denominator


@lru_cache(8)
def _filters(up: int, down: int) -> tuple[np.ndarray, int, int]:
    """Return the filters (taps, outputs), their reach to the left in old samples, and the step.

    The step is the number of old samples after which the filters repeat. It is d, or a multiple of
    it where the windows of neighbouring steps would be nearly the same: one window then serves
    several of them.
    """
    band = min(up, down) * ROLL_OFF
    reach = math.ceil(ZEROS * down / band)
    taps = np.arange(-reach, reach + down) / down
    times = (taps[:, None] - np.arange(up) / up) * band  # in zero crossings
    window = np.cos(np.pi / 2 * np.clip(times / ZEROS, -1, 1)) ** 2
    filters = np.sinc(times) * window * band / down  # (taps, u)
    filters /= filters.sum(0)  # a constant stays that constant
    repeats = max(1, len(taps) // down)
    several = np.zeros((len(taps) + (repeats - 1) * down, repeats * up), np.float32)
    for repeat in range(repeats):
        several[repeat * down : repeat * down + len(taps), repeat * up : (repeat + 1) * up] = filters
    return several, reach, repeats * down


def mel(hertz: np.ndarray | float) -> np.ndarray:
    """Convert hertz to mels by the formula of HTK (Young et al. 2006, eq. 5.13)."""
    return 2595.0 * np.log10(1.0 + np.asarray(hertz) / 700.0)


def hertz(mels: np.ndarray | float) -> np.ndarray:
    """Convert mels to hertz."""
    return 700.0 * (10.0 ** (np.asarray(mels) / 2595.0) - 1.0)


def mel_filters(count: int, rate: int, size: int, low: float, high: float) -> np.ndarray:
    """Return (size // 2 + 1, count) triangles, equally wide on the mel scale.

    Each is 1 at its centre and 0 at its neighbours' centres. Between the first and the last centre
    they add up to 1 on the mel scale, so that no frequency counts more than another.
    """
    edges = np.linspace(mel(low), mel(high), count + 2)
    bins = mel(np.arange(size // 2 + 1) * rate / size)[:, None]
    step = edges[1] - edges[0]
    filters: np.ndarray = np.clip(1.0 - np.abs(bins - edges[1:-1]) / step, 0.0, None)
    return filters


@lru_cache(16)
def _spectrogram_parts(
    count: int, rate: int, window: int, low: float, high: float
) -> tuple[np.ndarray, np.ndarray, int]:
    """Return the window, the filters, and the size of the transform.

    The size is the least power of two that gives every filter a frequency bin.
    """
    size = 1 << (window - 1).bit_length()
    filters = mel_filters(count, rate, size, low, high)
    while not filters.any(0).all():
        size *= 2
        filters = mel_filters(count, rate, size, low, high)
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    return hann.astype(np.float32), filters.astype(np.float32), size


def frame_count(samples: int, hop: int) -> int:
    """Return the number of frames: every started hop is one, and an empty wave has one too."""
    return max(1, -(-samples // hop))


def log_mel(wave: np.ndarray, rate: int, *, mels: int, window: int, hop: int, low: float, high: float) -> np.ndarray:
    """Return (frame_count, mels): the natural logarithm of the energies.

    Frame i is centred on the middle of hop i.
    """
    frames = frame_count(len(wave), hop)
    hann, filters, size = _spectrogram_parts(mels, rate, window, low, high)
    # A frame is the window in the middle of a transform. Where in the transform it lies changes phases alone, so only
    # the samples under the window are cut out, and the transform pads them behind.
    left = (size - hop) // 2 - (size - window) // 2
    right = max(0, (frames - 1) * hop + window - left - len(wave))
    padded = np.pad(wave.astype(np.float32, copy=False), (max(left, 0), right))[max(-left, 0) :]
    windows = np.lib.stride_tricks.sliding_window_view(padded, window)[::hop][:frames]  # (frames, window)
    energies = np.empty((frames, mels), np.float32)
    step = max(1, BLOCK // size)
    for begin in range(0, frames, step):
        block = slice(begin, begin + step)
        spectrum = np.fft.rfft(windows[block] * hann, size)  # (frames, size // 2 + 1)
        np.matmul(spectrum.real**2 + spectrum.imag**2, filters, out=energies[block])
    return np.log(np.maximum(energies, np.float32(QUIETEST)))
