"""Files that were uploaded to the studio.

They are stored for as long as it runs, up to a total size.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from collections.abc import AsyncIterable
from dataclasses import dataclass
from pathlib import Path

from dragoman.data.media import file_kinds, suffix_kind
from dragoman.errors import UserError
from dragoman.studio.library import NotFound
from dragoman.studio.records import Upload
from dragoman.studio.views.media import CONTENT_TYPES

MAX_FILE_SIZE = 32_000_000  # bytes
MAX_TOTAL_SIZE = 512_000_000  # bytes of all files; beyond it the oldest are deleted
TABLE_SUFFIXES = (".tsv", ".txt", ".jsonl", ".gz")


class UploadTooLarge(UserError):
    """A file is larger than the studio accepts."""


@dataclass(frozen=True)
class StoredUpload:
    """An uploaded file, and what the page knows about it."""

    path: Path
    record: Upload

    @property
    def content_type(self) -> str:
        """Return the media type of the file, for the Content-Type header."""
        return CONTENT_TYPES.get(self.path.suffix, "application/octet-stream")


class Uploads:
    """The uploaded files, in a temporary folder that ``close`` deletes."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="dragoman-studio-", ignore_cleanup_errors=True)
        self._stored: dict[str, StoredUpload] = {}  # by id, oldest first

    async def store(self, name: str, chunks: AsyncIterable[bytes]) -> Upload:
        """Store a file that arrives in chunks. The oldest files make room for it."""
        suffix = Path(name).suffix.lower()
        kind = suffix_kind(f"file{suffix}") or ("table" if suffix in TABLE_SUFFIXES else None)
        if kind is None:
            suffixes = [suffix for modality in file_kinds().values() for suffix in modality.suffixes]
            raise UserError(
                f"{name}: the studio does not read this kind of file; give one that ends in "
                f"{', '.join([*suffixes, *TABLE_SUFFIXES])}"
            )
        identity = f"upload-{secrets.token_hex(8)}"
        path = Path(self._folder.name) / f"{identity}{suffix}"  # the name that was given never becomes a path
        size = 0
        try:
            with path.open("wb") as file:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > MAX_FILE_SIZE:
                        raise UploadTooLarge(
                            f"{name}: larger than {MAX_FILE_SIZE // 1_000_000} MB; give a smaller file"
                        )
                    file.write(chunk)
            if not size:
                raise UserError(f"{name}: the file is empty")
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        record = Upload(id=identity, name=os.path.basename(name), kind=kind, size=size, url=f"/api/uploads/{identity}")
        self._stored[identity] = StoredUpload(path, record)
        while sum(upload.record.size for upload in self._stored.values()) > MAX_TOTAL_SIZE:
            self._stored.pop(next(iter(self._stored))).path.unlink(missing_ok=True)
        return record

    def get(self, identity: str) -> StoredUpload:
        """Return the file with this id. Raise ``NotFound`` if there is none."""
        if identity not in self._stored:
            raise NotFound(f"{identity}: no such upload; upload the file again")
        return self._stored[identity]

    def url(self, path: str) -> str:
        """Return the URL of an uploaded file, or "" for any other path."""
        return next((upload.record.url for upload in list(self._stored.values()) if str(upload.path) == path), "")

    def close(self) -> None:
        """Delete all files."""
        self._folder.cleanup()
