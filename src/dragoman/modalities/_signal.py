"""From waves to log-mel frames: resampling, mel filters, the spectrogram. Numbers in, numbers out; no files."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

ZEROS = 16  # crossings of zero on each side of the resampling filter: more is steeper and slower
ROLL_OFF = 0.95  # where the filter begins to fall, as a share of the highest frequency that the new rate can hold
MOST_FILTERS = 1000  # rates whose ratio needs more are taken in the nearest simpler one, off by a millionth or so
QUIETEST = 1e-7  # energy of a filter; about the rounding of 16-bit samples, so that digital silence is no outlier


def resample(wave: Tensor, old: int, new: int) -> Tensor:
    """(N,) at the rate ``old`` → (ceil(N * new / old),) at the rate ``new``.

    Band-limited interpolation (Smith & Gossett 1984): every new sample is a sum of old ones around it, weighed by a
    windowed sinc, which cuts off what the new rate cannot hold. Of new / old = u / d in lowest terms only u different
    filters exist; each serves every d-th old sample, so all of them are one convolution of stride d.
    """
    if old == new or not len(wave):
        return wave
    up, down = _ratio(new, old)
    filters, reach = _filters(up, down)
    length = -(-len(wave) * new // old)
    padded = torch.nn.functional.pad(wave[None, None], (reach, reach + down))
    found = torch.nn.functional.conv1d(padded, filters[:, None], stride=down)  # (1, u, N / d)
    found = found[0].t().reshape(-1)[:length]
    return torch.nn.functional.pad(found, (0, length - len(found)))  # where the simpler ratio is a little smaller


def _ratio(new: int, old: int) -> tuple[int, int]:
    """u and d: new / old in lowest terms, or close to it with neither above the limit."""
    if new > old:
        down, up = _ratio(old, new)
        return up, down
    ratio = Fraction(new, old).limit_denominator(MOST_FILTERS)
    return max(1, ratio.numerator), ratio.denominator


@lru_cache(8)
def _filters(up: int, down: int) -> tuple[Tensor, int]:
    """(u, taps) the filters, and how many old samples to the left of its place each of them begins."""
    band = min(up, down) * ROLL_OFF
    reach = math.ceil(ZEROS * down / band)
    taps = np.arange(-reach, reach + down) / down
    times = (taps[None] - np.arange(up)[:, None] / up) * band  # in crossings of zero
    window = np.cos(np.pi / 2 * np.clip(times / ZEROS, -1, 1)) ** 2
    filters = np.sinc(times) * window * band / down
    filters /= filters.sum(1, keepdims=True)  # a constant stays that constant
    return torch.from_numpy(filters).float(), reach


def mel(hertz: np.ndarray | float) -> np.ndarray:
    """The mel scale by the formula of HTK (Young et al. 2006, eq. 5.13)."""
    return 2595.0 * np.log10(1.0 + np.asarray(hertz) / 700.0)


def hertz(mels: np.ndarray | float) -> np.ndarray:
    return 700.0 * (10.0 ** (np.asarray(mels) / 2595.0) - 1.0)


def mel_filters(count: int, rate: int, size: int, low: float, high: float) -> np.ndarray:
    """(size // 2 + 1, count): triangles equally wide on the mel scale, each 1 at its centre and 0 at its neighbours'.

    Between the first centre and the last one they add up to 1 on the mel scale, so that no frequency counts more.
    """
    edges = np.linspace(mel(low), mel(high), count + 2)
    bins = mel(np.arange(size // 2 + 1) * rate / size)[:, None]
    step = edges[1] - edges[0]
    return np.clip(1.0 - np.abs(bins - edges[1:-1]) / step, 0.0, None)


@lru_cache(16)
def _spectrogram_parts(count: int, rate: int, window: int, low: float, high: float) -> tuple[Tensor, Tensor, int]:
    """The window, the filters, and the size of the transform: the least power of two that gives every filter a bin."""
    size = 1 << (window - 1).bit_length()
    filters = mel_filters(count, rate, size, low, high)
    while not filters.any(0).all():
        size *= 2
        filters = mel_filters(count, rate, size, low, high)
    return torch.hann_window(window), torch.from_numpy(filters).float(), size


def frame_count(samples: int, hop: int) -> int:
    """Every started hop is a frame; an empty wave has one too."""
    return max(1, -(-samples // hop))


def log_mel(wave: Tensor, rate: int, *, mels: int, window: int, hop: int, low: float, high: float) -> Tensor:
    """(N,) → (frame_count, mels): natural logarithm of the energies. Frame i stands around the middle of its hop."""
    frames = frame_count(len(wave), hop)
    weights, filters, size = _spectrogram_parts(mels, rate, window, low, high)
    left = (size - hop) // 2
    right = max(0, (frames - 1) * hop + size - left - len(wave))
    padded = torch.nn.functional.pad(wave.float(), (left, right))
    spectrum = torch.stft(
        padded, size, hop, len(weights), weights, center=False, onesided=True, return_complex=True
    )  # (size // 2 + 1, frames)
    energy = spectrum[:, :frames].abs().square().t()
    return (energy @ filters).clamp_min(QUIETEST).log()
