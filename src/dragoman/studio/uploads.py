"""Files that were dropped on the page: kept for as long as the studio runs, a few at a time."""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import AsyncIterable
from dataclasses import dataclass
from pathlib import Path

from dragoman.data.media import suffix_kind
from dragoman.errors import UserError
from dragoman.studio.library import Unknown
from dragoman.studio.records import Upload

LARGEST = 32_000_000  # bytes of a file
TOGETHER = 512_000_000  # bytes of all; beyond it the oldest go
TABLES = (".tsv", ".txt", ".jsonl", ".gz")
TYPES = {
    ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp",
    ".wav": "audio/wav", ".flac": "audio/flac", ".ogg": "audio/ogg",
}  # fmt: skip


class TooLarge(UserError):
    pass


@dataclass(frozen=True)
class Kept:
    path: Path
    record: Upload

    @property
    def content_type(self) -> str:
        return TYPES.get(self.path.suffix, "application/octet-stream")


class Uploads:
    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="dragoman-studio-", ignore_cleanup_errors=True)
        self._kept: dict[str, Kept] = {}

    async def take(self, name: str, chunks: AsyncIterable[bytes]) -> Upload:
        suffix = Path(name).suffix.lower()
        kind = suffix_kind(f"file{suffix}") or ("table" if suffix in TABLES else None)
        if kind is None:
            raise UserError(
                f"{name}: no kind of file that is read here; pictures are PNG, JPEG or WebP, recordings WAV, FLAC or "
                "Ogg, feature sequences .npy, tables .tsv or .jsonl"
            )
        identity = f"upload-{secrets.token_hex(8)}"
        path = Path(self._folder.name) / f"{identity}{suffix}"  # the name given never becomes a path
        size = 0
        try:
            with path.open("wb") as file:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > LARGEST:
                        raise TooLarge(f"{name}: larger than {LARGEST // 1_000_000} MB; give a smaller file")
                    file.write(chunk)
            if not size:
                raise UserError(f"{name}: an empty file")
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        record = Upload(id=identity, name=os.path.basename(name), kind=kind, size=size, url=f"/api/uploads/{identity}")
        self._kept[identity] = Kept(path, record)
        while sum(one.record.size for one in self._kept.values()) > TOGETHER:
            self._kept.pop(next(iter(self._kept))).path.unlink(missing_ok=True)
        return record

    def get(self, identity: str) -> Kept:
        if identity not in self._kept:
            raise Unknown(f"{identity}: no such upload; drop the file again")
        return self._kept[identity]

    def address(self, path: str) -> str:
        """Where the page finds a file that was uploaded; "" of any other."""
        return next((one.record.url for one in self._kept.values() if str(one.path) == path), "")

    def close(self) -> None:
        self._folder.cleanup()
