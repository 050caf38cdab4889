"""Read recordings: WAV, FLAC and Ogg, recognised by their content and not by their name."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from dragoman.data.media import MediaError, Probe, check_file, short_reason
from dragoman.errors import MissingExtra

if TYPE_CHECKING:
    from soundfile import SoundFile

MOST_SAMPLES = 1 << 28  # of one recording, over all channels; more than four hours at 16 kHz
LOWEST_RATE, HIGHEST_RATE = 1000, 768_000  # samples per second; a header that says more or less is wrong
_BLOCK = 1 << 16  # frames that a check reads at once
_PAGE = 65_307  # bytes of the largest Ogg page
_UNKNOWN = (0, 0xFFFFFFFF)  # lengths that a program writes if it cannot go back to the header
_MARKS = (b"RIFF", b"RIFX", b"RF64", b"fLaC", b"OggS")


def read(path: str) -> tuple[np.ndarray, int]:
    """Return (N,) float32 samples from -1 to 1, the mean of the channels, and the sampling rate."""
    with _open(path) as sound:
        try:
            samples = sound.read(dtype="float32", always_2d=True)  # (N, channels)
        except Exception as error:
            raise MediaError(f"truncated or damaged: {short_reason(error)}", "truncated_file") from None
        if len(samples) < sound.frames:
            raise _truncated(len(samples), sound.frames)
        rate = int(sound.samplerate)
    mono = samples[:, 0] if samples.shape[1] == 1 else samples.mean(axis=1, dtype=np.float32)
    if not np.isfinite(mono).all():
        raise _not_finite(samples)
    return np.ascontiguousarray(mono), rate


def probe(path: str) -> Probe:
    """Read the header."""
    with _open(path) as sound:
        return _header(sound)


def examine(path: str) -> Probe:
    """Read the header, and check that the file is whole."""
    with _open(path) as sound:
        header = _header(sound)
        try:
            # a compressed file may be damaged anywhere: it must be read to its end
            if sound.format in ("FLAC", "OGG") or sound.subtype in ("FLOAT", "DOUBLE"):
                present = 0
                for block in sound.blocks(_BLOCK, dtype="float32", always_2d=True):
                    present += len(block)
                    if not np.isfinite(block).all():
                        raise _not_finite(block)
                if present < sound.frames:
                    raise _truncated(present, sound.frames)
        except MediaError:
            raise
        except Exception:
            raise MediaError("truncated or damaged: it cannot be read to its end", "truncated_file") from None
    return header


def _header(sound: SoundFile) -> Probe:
    rate, frames = int(sound.samplerate), int(sound.frames)
    return Probe(seconds=frames / rate, rate=rate, channels=int(sound.channels), frames=frames)


def _open(path: str) -> SoundFile:
    try:
        import soundfile
    except (ImportError, OSError):  # OSError: the library underneath is missing
        raise MissingExtra("soundfile", "audio", "reading recordings") from None
    size = check_file(path).st_size
    try:
        with open(path, "rb") as stream:
            _check_container(stream, size)
        sound = soundfile.SoundFile(path)
    except MediaError:
        raise
    except Exception as error:
        reason = short_reason(error).removeprefix(f"Error opening {path!r}: ").removeprefix("Error : ")
        raise MediaError(f"not a readable recording ({reason})") from None
    try:
        _check(sound)
    except MediaError:
        sound.close()
        raise
    return sound


def _check(sound: SoundFile) -> None:
    if not LOWEST_RATE <= sound.samplerate <= HIGHEST_RATE:
        raise MediaError(f"{sound.samplerate:,} samples a second cannot be right")
    if sound.frames <= 0:
        raise MediaError("a recording of 0 seconds")
    if sound.frames * sound.channels > MOST_SAMPLES:
        raise MediaError(
            f"a recording of {sound.frames / sound.samplerate:,.0f} seconds has {sound.frames * sound.channels:,} "
            f"samples, over the limit of {MOST_SAMPLES:,}; cut it",
            "too_large",
        )


def _check_container(stream: BinaryIO, size: int) -> None:
    """Find a file that ends too early, which libsndfile does not report."""
    head = stream.read(12)
    if not head.startswith(_MARKS) or (head[:1] == b"R" and head[8:12] != b"WAVE"):
        raise MediaError("not a WAV, FLAC or Ogg recording")
    if head.startswith((b"RIFF", b"RIFX")):
        _check_wave(stream, size, "<I" if head.startswith(b"RIFF") else ">I")
    elif head.startswith(b"OggS"):
        _check_ogg(stream, size)


def _check_wave(stream: BinaryIO, size: int, number: str) -> None:
    """Walk through the chunks up to the samples, which must be complete."""
    at, block = 12, 1
    while at + 8 <= size:
        stream.seek(at)
        head = stream.read(8)
        length = struct.unpack(number, head[4:])[0]
        if head[:4] == b"fmt ":
            form = stream.read(16)
            block = max(1, struct.unpack(number[0] + "H", form[12:14])[0]) if len(form) == 16 else 1  # bytes per frame
        if head[:4] == b"data":
            if length > size - at - 8 and length not in _UNKNOWN:
                raise _truncated((size - at - 8) // block, length // block)
            return
        at += 8 + length + length % 2
    raise MediaError("truncated: the WAV has no samples", "truncated_file")


def _check_ogg(stream: BinaryIO, size: int) -> None:
    """Check that the last page is complete."""
    stream.seek(max(0, size - 2 * _PAGE))
    tail = stream.read()
    page = tail[tail.rfind(b"OggS") :]
    whole = len(page) >= 27 and len(page) >= 27 + page[26] + sum(page[27 : 27 + page[26]])
    if not whole:
        raise MediaError("truncated: the last page of the Ogg stream is cut off", "truncated_file")


def _truncated(present: int, promised: int) -> MediaError:
    share = f"{present:,} of " if present else "less than the "
    return MediaError(f"truncated: {share}{promised:,} samples that the header promises are there", "truncated_file")


def _not_finite(samples: np.ndarray) -> MediaError:
    bad = int(np.count_nonzero(~np.isfinite(samples).all(axis=1)))
    return MediaError(f"{bad:,} samples are not finite numbers", "not_finite")
