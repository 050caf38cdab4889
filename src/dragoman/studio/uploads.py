"""Files that the studio shows: those that were uploaded, and those that rows of the data name.

Uploads are stored for as long as the studio runs, up to a total size.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
import tempfile
from collections.abc import AsyncIterable
from dataclasses import dataclass
from pathlib import Path

from dragoman.data.media import file_kinds, suffix_kind
from dragoman.data.reading.rows import TABLE_SUFFIXES
from dragoman.errors import UserError
from dragoman.serving.limits import Limits
from dragoman.serving.uploads import write_upload
from dragoman.studio.library import NotFound
from dragoman.studio.records import SourceFile, Upload
from dragoman.studio.views.media import CONTENT_TYPES

TABLES = (*TABLE_SUFFIXES, ".txt", ".gz")


@dataclass(frozen=True)
class StoredUpload:
    """An uploaded file, and what the page knows about it."""

    path: Path
    record: Upload

    @property
    def content_type(self) -> str:
        """Return the media type of the file, for the Content-Type header."""
        return CONTENT_TYPES.get(self.path.suffix.lower(), "application/octet-stream")


class Uploads:
    """The uploaded files, in a temporary folder that ``close`` deletes."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = limits or Limits()
        self._folder = tempfile.TemporaryDirectory(prefix="dragoman-studio-", ignore_cleanup_errors=True)
        self._stored: dict[str, StoredUpload] = {}  # by id, oldest first
        self._of_data: dict[str, StoredUpload] = {}  # by id: files of the data, which stay where they are

    async def store(self, name: str, chunks: AsyncIterable[bytes]) -> Upload:
        """Store a file that arrives in chunks. The oldest files make room for it."""
        suffix = Path(name).suffix.lower()
        kind = suffix_kind(f"file{suffix}") or ("table" if suffix in TABLES else None)
        if kind is None:
            suffixes = [suffix for modality in file_kinds().values() for suffix in modality.suffixes]
            raise UserError(
                f"{name}: the studio does not read this kind of file; give one that ends in "
                f"{', '.join([*suffixes, *TABLES])}"
            )
        identity = f"upload-{secrets.token_hex(8)}"
        path = Path(self._folder.name) / f"{identity}{suffix}"  # the name that was given never becomes a path
        size = await write_upload(path, name, chunks, self._limits)
        record = Upload(id=identity, name=os.path.basename(name), kind=kind, size=size, url=f"/api/uploads/{identity}")
        self._stored[identity] = StoredUpload(path, record)
        while sum(upload.record.size for upload in self._stored.values()) > self._limits.stored_bytes:
            self._stored.pop(next(iter(self._stored))).path.unlink(missing_ok=True)
        return record

    def link(self, path: str, kind: str) -> SourceFile:
        """Make a file of the data known, and return how the page finds it. The same file always has the same id.

        A file whose name does not say that it is of this kind is named only, and so is a link to one: a table must not
        make the studio show any file of this machine.
        """
        if suffix_kind(path) != kind or suffix_kind(os.path.realpath(path)) != kind:
            return SourceFile(id="", kind=kind, url="")
        identity = f"file-{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}"
        if identity not in self._of_data:
            file = Path(path)
            if (size := _regular_size(file)) is None:
                return SourceFile(id="", kind=kind, url="")
            record = Upload(id=identity, name=file.name, kind=kind, size=size, url=f"/api/uploads/{identity}")
            self._of_data[identity] = StoredUpload(file, record)
        return SourceFile(id=identity, kind=kind, url=self._of_data[identity].record.url)

    def get(self, identity: str) -> StoredUpload:
        """Return the file with this id. Raise ``NotFound`` if there is none."""
        found = self._stored.get(identity) or self._of_data.get(identity)
        if found is None:
            raise NotFound(f"{identity[:100]}: no such upload; upload the file again")
        if _regular_size(found.path) is None:
            raise NotFound(f"{found.record.name}: the file is gone")
        return found

    def url(self, path: str) -> str:
        """Return the URL of an uploaded file or of a file of the data, or "" for any other path."""
        known = [*self._stored.values(), *self._of_data.values()]
        return next((upload.record.url for upload in known if str(upload.path) == path), "")

    def close(self) -> None:
        """Delete all files."""
        self._folder.cleanup()


def _regular_size(path: Path) -> int | None:
    """Return the size of a regular file; None for a pipe or a device, which would be waited for, and for no file."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
