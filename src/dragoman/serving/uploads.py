"""Files that clients send: written under names of this program's own, within limits."""

from __future__ import annotations

from collections.abc import AsyncIterable
from pathlib import Path

from dragoman.errors import UserError
from dragoman.serving.limits import Limits, RequestRefused


async def write_upload(path: Path, name: str, chunks: AsyncIterable[bytes], limits: Limits) -> int:
    """Write a file that arrives in chunks, and return its size. ``name`` is what messages call it, and never a path."""
    size = 0
    try:
        with path.open("wb") as file:
            async for chunk in chunks:
                size += len(chunk)
                if size > limits.upload_bytes:
                    most = limits.upload_bytes
                    raise RequestRefused(413, f"{name}: larger than {most:,} bytes; give a smaller file")
                file.write(chunk)
        if not size:
            raise UserError(f"{name}: the file is empty")
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return size
