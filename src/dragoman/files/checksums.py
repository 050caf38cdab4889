"""A file that carries its own SHA-256, so that one rename commits contents and checksum together.

The checksum is that of the whole file with the checksum's own 64 digits set to zero. In a JSON file
it is the first key, in a safetensors file the first key of the metadata. So damage anywhere, the
checksum included, changes one of the two. A checksum is no signature: whoever can write a file can
write its checksum too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

KEY = "sha256"
BLANK = "0" * 64

_IN_JSON = re.compile(rb'\s*\{\s*"sha256"\s*:\s*"([^"\\]*)"')
_IN_TENSORS = re.compile(rb'.{8}\{"__metadata__":\{"sha256":"([^"\\]*)"', re.DOTALL)
# where the name of the key, or one of the digits, is damaged, the digits are still there as the first value
_MISPLACED = re.compile(rb'(?:.{8}\{"[^"]*":)?\s*.\s*"[^"]{0,20}"\s*.\s*"[^"]*[0-9a-f]{24}', re.DOTALL)
_HEAD = 200  # bytes in which the checksum has to be


def seal(chunks: Sequence[bytes | memoryview]) -> list[bytes | memoryview]:
    """Return the chunks of a file with its checksum in the place of the zeros of the first chunk."""
    first = bytes(chunks[0])
    start = first.index(BLANK.encode(), 0, _HEAD)
    digest = hashlib.sha256()
    for chunk in (first, *chunks[1:]):
        digest.update(chunk)
    sealed = first[:start] + digest.hexdigest().encode() + first[start + len(BLANK) :]
    return [sealed, *chunks[1:]]


def check_seal(data: bytes, *, tensors: bool = False) -> str | None:
    """Return what is wrong with the checksum of a file; None: it is right. A file without one is right too."""
    match = (_IN_TENSORS if tensors else _IN_JSON).match(data[:_HEAD])
    if match is None:
        return "its checksum is not as it was written" if _MISPLACED.match(data[:_HEAD]) else None
    start, end = match.span(1)
    digest = hashlib.sha256(data[:start])
    digest.update(BLANK.encode())
    digest.update(memoryview(data)[end:])
    return None if digest.hexdigest().encode() == match[1] else "its SHA-256 is not the one that was written into it"


def is_sealed(data: bytes, *, tensors: bool = False) -> bool:
    """Return whether a file carries a checksum."""
    return (_IN_TENSORS if tensors else _IN_JSON).match(data[:_HEAD]) is not None
