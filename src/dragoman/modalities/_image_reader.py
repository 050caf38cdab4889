"""Read pictures: PNG, JPEG and WebP, recognised by their content and not by their name.

The size is in the header and is checked before a pixel is decoded: a few bytes can claim a picture
of gigabytes.
"""

from __future__ import annotations

import os
import re
import struct
import zlib
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from dragoman.data.media import MediaError, Probe, check_file, short_reason
from dragoman.errors import MissingExtra

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

MOST_PIXELS = 64_000_000  # of one picture; decoded, a pixel takes three bytes
_ORIENTATION = 0x0112  # the tag in EXIF
_TAIL = 4096  # bytes at the end of a JPEG that are searched for its end mark
_PNG = b"\x89PNG\r\n\x1a\n"


def read(path: str) -> np.ndarray:
    """Return (H, W, 3) uint8 in RGB.

    The picture is turned as EXIF says, transparent parts are on white, and of several frames it is
    the first.
    """
    with _open(path) as stream:
        picture = _header(stream)
        turn = _orientation(picture)
        try:
            picture.load()
            pixels = _rgb(picture)
        except Exception as error:
            raise _damaged(error) from None
    return _turned(pixels, turn)


def probe(path: str) -> Probe:
    """Read the header."""
    with _open(path) as stream:
        picture = _header(stream)
        width, height = picture.size
        if _orientation(picture) >= 5:
            width, height = height, width
    return Probe(height=height, width=width)


def examine(path: str) -> Probe:
    """Read the header, and check that the file is whole."""
    header = probe(path)
    with _open(path) as stream:
        head = stream.read(16)
        if head.startswith(_PNG):
            _walk_png(stream)
        elif head.startswith(b"\xff\xd8"):
            stream.seek(max(0, os.fstat(stream.fileno()).st_size - _TAIL))
            if b"\xff\xd9" not in stream.read():  # cut off, or other data follows: only decoding tells
                read(path)
    return header


def _open(path: str) -> BinaryIO:
    check_file(path)
    try:
        return open(path, "rb")
    except (OSError, ValueError) as error:
        raise MediaError(f"cannot be opened ({short_reason(error)})") from None


def _header(stream: BinaryIO) -> ImageFile:
    """Return the picture with its size, which is not too large; nothing is decoded yet."""
    try:
        from PIL import JpegImagePlugin, PngImagePlugin, WebPImagePlugin
    except ImportError:
        raise MissingExtra("Pillow", "images", "reading pictures") from None
    head = stream.read(32)
    stream.seek(0)
    # The classes are used directly: Image.open would warn of large pictures by a limit of its own.
    if head.startswith(_PNG):
        opener, size = PngImagePlugin.PngImageFile, _png_size(head)
    elif head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        whole = struct.unpack("<I", head[4:8])[0] + 8
        if (there := os.fstat(stream.fileno()).st_size) < whole:
            raise MediaError(f"truncated: {there:,} of {whole:,} bytes", "truncated_file")
        opener, size = WebPImagePlugin.WebPImageFile, _webp_size(head)  # type: ignore[assignment]
    elif head.startswith(b"\xff\xd8\xff"):
        opener, size = JpegImagePlugin.JpegImageFile, None  # type: ignore[assignment]
    else:
        raise MediaError("not a PNG, JPEG or WebP picture")
    if size is not None:
        _check_size(*size)
    try:
        picture = opener(stream)
    except Exception as error:  # Pillow's decoders raise nearly everything on damaged files
        raise _damaged(error) from None
    _check_size(*picture.size)
    return picture


def _check_size(width: int, height: int) -> None:
    if not width or not height:
        raise MediaError(f"a picture of {width} × {height} pixels has nothing in it")
    if width * height > MOST_PIXELS:
        raise MediaError(
            f"a picture of {width:,} × {height:,} pixels, over the limit of {MOST_PIXELS // 1_000_000} million",
            "too_large",
        )


def _png_size(head: bytes) -> tuple[int, int]:
    if len(head) < 24 or head[12:16] != b"IHDR":
        raise MediaError("truncated: the PNG ends in its header", "truncated_file")
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def _webp_size(head: bytes) -> tuple[int, int] | None:
    """Return width and height by the WebP specification; None if the first chunk has none."""
    if len(head) < 30:
        raise MediaError("truncated: the WebP ends in its header", "truncated_file")
    chunk = head[12:16]
    if chunk == b"VP8X":
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    if chunk == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if chunk == b"VP8 ":
        width, height = struct.unpack("<HH", head[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return None


def _walk_png(stream: BinaryIO) -> None:
    """Check that every chunk of a PNG is there and has the right checksum."""
    stream.seek(len(_PNG))
    while True:
        head = stream.read(8)
        length = int.from_bytes(head[:4], "big")
        # One read per chunk; a wrong length reads to the end of the file at most.
        body = stream.read(length + 4) if len(head) == 8 else b""
        if len(body) < length + 4:
            raise MediaError("truncated: the PNG ends before its last chunk", "truncated_file")
        if zlib.crc32(body[:-4], zlib.crc32(head[4:])) != int.from_bytes(body[-4:], "big"):
            raise MediaError(f"damaged: the checksum of its {head[4:].decode('latin-1')} chunk is wrong")
        if head[4:] == b"IEND":
            return


def _orientation(picture: ImageFile) -> int:
    """Return the EXIF orientation, 1 to 8; 1 if EXIF cannot be read.

    The picture itself may still be good then.
    """
    from PIL import Image

    data = picture.info.get("exif")
    if not data:
        return 1
    try:
        exif = Image.Exif()
        exif.load(data)
        turn = exif.get(_ORIENTATION, 1)
    except Exception:
        return 1
    return turn if isinstance(turn, int) and 1 <= turn <= 8 else 1


def _turned(pixels: np.ndarray, turn: int) -> np.ndarray:
    if turn >= 5:  # 5 to 8 are 1 to 4 (in this order: 1, 4, 3, 2) of the transposed picture
        pixels, turn = pixels.transpose(1, 0, 2), {5: 1, 6: 2, 7: 3, 8: 4}[turn]
    if turn in (2, 3):
        pixels = pixels[:, ::-1]
    if turn in (3, 4):
        pixels = pixels[::-1]
    return np.ascontiguousarray(pixels)


def _rgb(picture: Any) -> np.ndarray:
    from PIL import Image

    if picture.mode.startswith(("I", "F")):  # 16 bits per pixel: convert() would clip instead of scale
        grey = (np.asarray(picture).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)
        return np.repeat(grey[:, :, None], 3, axis=2)  # (H, W, 3)
    if picture.has_transparency_data:
        layer = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
    return np.array(picture.convert("RGB"))  # (H, W, 3); a copy, for it may be changed


def _damaged(error: Exception) -> MediaError:
    reason = short_reason(error)
    if re.search("truncated|incomplete", reason, re.IGNORECASE):
        return MediaError(f"truncated: {reason}", "truncated_file")
    return MediaError(f"damaged: {reason}")
