"""Recordings: WAV, FLAC, Ogg, by what is in the file and not by its name."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from dragoman.data.media.files import MediaError, Probe, say, status
from dragoman.errors import MissingExtra

if TYPE_CHECKING:
    from soundfile import SoundFile

MOST_SAMPLES = 1 << 28  # of one recording, all channels; over four hours at 16 kHz
LOWEST_RATE, HIGHEST_RATE = 1000, 768_000  # samples a second; beyond, a header lies
_BLOCK = 1 << 16  # frames read at once where only a look is wanted
_PAGE = 65_307  # bytes of the largest Ogg page
_UNKNOWN = (0, 0xFFFFFFFF)  # lengths that a program writes which cannot go back to its header
_MARKS = (b"RIFF", b"RIFX", b"RF64", b"fLaC", b"OggS")


def read(path: str) -> tuple[np.ndarray, int]:
    """(N,) float32 between -1 and 1, the mean of the channels, and samples a second."""
    with _opened(path) as sound:
        try:
            samples = sound.read(dtype="float32", always_2d=True)  # (N, channels)
        except Exception as error:
            raise MediaError(f"truncated or damaged: {say(error)}", "truncated_file") from None
        if len(samples) < sound.frames:
            raise _short(len(samples), sound.frames)
        rate = int(sound.samplerate)
    mono = samples[:, 0] if samples.shape[1] == 1 else samples.mean(axis=1, dtype=np.float32)
    if not np.isfinite(mono).all():
        raise _not_finite(samples)
    return np.ascontiguousarray(mono), rate


def probe(path: str) -> Probe:
    with _opened(path) as sound:
        return _told(sound)


def examine(path: str) -> Probe:
    with _opened(path) as sound:
        found = _told(sound)
        try:
            # what is compressed may be damaged anywhere; only reading it all tells
            if sound.format in ("FLAC", "OGG") or sound.subtype in ("FLOAT", "DOUBLE"):
                there = 0
                for block in sound.blocks(_BLOCK, dtype="float32", always_2d=True):
                    there += len(block)
                    if not np.isfinite(block).all():
                        raise _not_finite(block)
                if there < sound.frames:
                    raise _short(there, sound.frames)
        except MediaError:
            raise
        except Exception:
            raise MediaError("truncated or damaged: it cannot be read to its end", "truncated_file") from None
    return found


def _told(sound: SoundFile) -> Probe:
    rate, frames = int(sound.samplerate), int(sound.frames)
    return Probe("speech", seconds=frames / rate, rate=rate, channels=int(sound.channels), frames=frames)


def _opened(path: str) -> SoundFile:
    try:
        import soundfile
    except (ImportError, OSError):  # OSError: the library underneath is missing
        raise MissingExtra("soundfile", "audio", "reading recordings") from None
    size = status(path).st_size
    try:
        with open(path, "rb") as stream:
            _look(stream, size)
        sound = soundfile.SoundFile(path)
    except MediaError:
        raise
    except Exception as error:
        reason = say(error).removeprefix(f"Error opening {path!r}: ").removeprefix("Error : ")
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


def _look(stream: BinaryIO, size: int) -> None:
    """What the library underneath passes over in silence: a file that ends before its header says."""
    head = stream.read(12)
    if not head.startswith(_MARKS) or (head[:1] == b"R" and head[8:12] != b"WAVE"):
        raise MediaError("not a WAV, FLAC or Ogg recording")
    if head.startswith((b"RIFF", b"RIFX")):
        _look_at_wave(stream, size, "<I" if head.startswith(b"RIFF") else ">I")
    elif head.startswith(b"OggS"):
        _look_at_ogg(stream, size)


def _look_at_wave(stream: BinaryIO, size: int, number: str) -> None:
    """The chunks up to the samples."""
    at, block = 12, 1
    while at + 8 <= size:
        stream.seek(at)
        head = stream.read(8)
        length = struct.unpack(number, head[4:])[0]
        if head[:4] == b"fmt ":
            form = stream.read(16)
            block = max(1, struct.unpack(number[0] + "H", form[12:14])[0]) if len(form) == 16 else 1  # bytes a frame
        if head[:4] == b"data":
            if length > size - at - 8 and length not in _UNKNOWN:
                raise _short((size - at - 8) // block, length // block)
            return
        at += 8 + length + length % 2
    raise MediaError("truncated: the WAV has no samples", "truncated_file")


def _look_at_ogg(stream: BinaryIO, size: int) -> None:
    """The last page is whole."""
    stream.seek(max(0, size - 2 * _PAGE))
    tail = stream.read()
    page = tail[tail.rfind(b"OggS") :]
    whole = len(page) >= 27 and len(page) >= 27 + page[26] + sum(page[27 : 27 + page[26]])
    if not whole:
        raise MediaError("truncated: the last page of the Ogg stream is cut off", "truncated_file")


def _short(there: int, promised: int) -> MediaError:
    found = f"{there:,} of " if there else "less than the "
    return MediaError(f"truncated: {found}{promised:,} samples that the header promises are there", "truncated_file")


def _not_finite(samples: np.ndarray) -> MediaError:
    bad = int(np.count_nonzero(~np.isfinite(samples).all(axis=1)))
    return MediaError(f"{bad:,} samples are not finite numbers", "not_finite")
