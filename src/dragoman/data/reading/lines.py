"""Read files line by line. A line ends at LF and nowhere else.

``str.splitlines`` would also break at U+2028, U+0085, vertical tab and others, which are data: a
row with one of them would become two, and all line numbers after it would be wrong.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from dragoman.data.audit.audit import Audit, Refusal
from dragoman.data.media import file_kinds, head_kind
from dragoman.errors import UserError
from dragoman.files import open_regular

LINE_LIMIT = 1 << 24  # bytes; a longer line is skipped without being held in memory
_HEAD = 4096  # bytes that tell whether a file is text
_BUFFER = 1 << 18
_SKIP_LIMIT = 1 << 28  # bytes; a file with a longer line has no lines
_OPENED = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")  # the shell's names for what it has opened

_GZIP = b"\x1f\x8b"
_NOT_TEXT = {
    b"PK\x03\x04": "a zip archive (or an office document)",
    b"%PDF-": "a PDF document",
    b"\xfd7zXZ\x00": "compressed with xz",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"BZh91AY&SY": "compressed with bzip2",
    b"SQLite format 3\x00": "a SQLite database",
}
_TABLES = {b"PAR1": "a Parquet file", b"ARROW1": "an Arrow file", b"FEA1": "a Feather file"}
_WIDE = {
    b"\xff\xfe\x00\x00": "UTF-32",
    b"\x00\x00\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}  # longer marks first: the UTF-32 mark begins with the UTF-16 one


def label(path: str | Path) -> str:
    """Return a path as it can be printed, whatever bytes are in it."""
    return "<stdin>" if str(path) == "-" else os.fsencode(path).decode("utf-8", "replace")


def read_lines(path: str | Path, audit: Audit, *, crlf_is_usual: bool = False) -> Iterator[str | Refusal]:
    """Yield every line without its end; ``audit`` records what is repaired or refused.

    ``crlf_is_usual``: the format is CSV, whose lines end in CR LF (RFC 4180), so that this is no repair.
    """
    file = label(path)
    number = 0
    try:
        with _opened(path, file) as stream:
            while raw := stream.readline(LINE_LIMIT + 1):
                number += 1
                ended = raw.endswith(b"\n")
                if len(raw) > LINE_LIMIT and not ended:
                    _skip_line(stream, file)
                    yield _too_long(file)
                    continue
                if ended:
                    raw = raw[:-1]
                if raw.endswith(b"\r"):
                    if not crlf_is_usual or raw.endswith(b"\r\r"):
                        audit.record("crlf", number, "the line ends in CR LF", file)
                    raw = raw.rstrip(b"\r")
                if number == 1 and not ended and b"\r" in raw:
                    raise UserError(
                        f"{file}:1: the lines end in CR alone, so the whole file is one line; "
                        f"convert it: tr '\\r' '\\n' < FILE > NEW"
                    )
                try:
                    text = raw.decode("utf-8")
                except UnicodeDecodeError as error:
                    reason = f"byte 0x{raw[error.start]:02X} at position {error.start + 1}"
                    yield Refusal("invalid_utf8", reason, file, raw.decode("utf-8", "replace"))
                    continue
                if text.startswith("\ufeff"):
                    text = text.lstrip("\ufeff")
                    audit.record("byte_order_mark", number, "byte order mark at the start of the line", file)
                yield text
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{_damaged(file, number, error)}, nothing of it was used") from None
    except OSError as error:
        raise UserError(f"{file}: {_explain(error)}") from None


def answered_lines(path: str | Path, damaged: list[str]) -> Iterator[str | Refusal]:
    """Yield every line without its end, for prediction: each needs an answer.

    Bytes that are not UTF-8 become U+FFFD, and the places of such lines are appended to
    ``damaged``. Only a line that is too long to be held in memory is refused. A line of standard
    input is yielded as soon as it arrives.
    """
    file = label(path)
    number = 0
    try:
        with _opened(path, file) as stream:
            while raw := stream.readline(LINE_LIMIT + 1):
                number += 1
                if len(raw) > LINE_LIMIT and not raw.endswith(b"\n"):
                    _skip_line(stream, file)
                    yield _too_long(file)
                    continue
                raw = raw.removesuffix(b"\n").removesuffix(b"\r")
                try:
                    text = raw.decode("utf-8")
                except UnicodeDecodeError:
                    text = raw.decode("utf-8", "replace")
                    damaged.append(f"{file}:{number}")
                yield text.removeprefix("\ufeff") if number == 1 else text
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(_damaged(file, number, error)) from None
    except OSError as error:
        raise UserError(f"{file}: {_explain(error)}") from None


def _skip_line(stream: BinaryIO, file: str) -> None:
    skipped = 0
    while (rest := stream.readline(_BUFFER)) and not rest.endswith(b"\n"):
        skipped += len(rest)
        if skipped > _SKIP_LIMIT:
            raise UserError(f"{file}: a line has more than {_SKIP_LIMIT:,} bytes; give a text file with lines")


def _too_long(file: str) -> Refusal:
    return Refusal("too_long", f"more than {LINE_LIMIT:,} bytes in one line", file)


def _damaged(file: str, lines: int, error: Exception) -> str:
    return f"{file}:{lines + 1}: the gzip data is damaged or cut off here ({error}); get the file again"


def _explain(error: OSError) -> str:
    if isinstance(error, FileNotFoundError):
        return "no such file; check the name and the folder"
    if isinstance(error, IsADirectoryError):
        return "this is a folder; give the file in it"
    if isinstance(error, PermissionError):
        return "no permission to read this file"
    return f"cannot be read: {error.strerror or error}"


@contextmanager
def _opened(path: str | Path, file: str) -> Iterator[BinaryIO]:
    """Open a file or standard input as bytes, decompressed."""
    with ExitStack() as stack:
        if str(path) == "-":
            if sys.stdin is None:
                raise UserError("<stdin>: there is no standard input; give a file")
            stream = _peekable(sys.stdin.buffer)
        elif "\x00" in str(path):
            raise UserError(f"{file!r}: a file name cannot hold a NUL character")
        else:
            # a pipe that the shell has opened is read; to open any other one might wait for ever
            is_open = str(path).startswith(_OPENED)
            opened = io.FileIO(path, "rb") if is_open else cast(io.RawIOBase, open_regular(path, buffering=0))
            stream = stack.enter_context(io.BufferedReader(opened, _BUFFER))
        head = stream.peek(_HEAD)[:_HEAD]  # of a pipe, what has arrived
        if head.startswith(_GZIP):
            unzipped = gzip.GzipFile(fileobj=stream)
            head = unzipped.peek(_HEAD)[:_HEAD]
            _refuse_if_not_text(head, file)
            yield cast(BinaryIO, unzipped)
            return
        if file.endswith(".gz") and head:
            raise UserError(f"{file}: named .gz, but it is not gzip data; rename it if it is plain text")
        _refuse_if_not_text(head, file)
        yield stream


def _peekable(stream: BinaryIO) -> io.BufferedReader:
    """Return a stream with ``peek``, which a replaced standard input may lack."""
    return stream if isinstance(stream, io.BufferedReader) else io.BufferedReader(cast(io.RawIOBase, stream))


def _refuse_if_not_text(head: bytes, file: str) -> None:
    for mark, name in _WIDE.items():
        if head.startswith(mark):
            raise UserError(f"{file}:1: this is {name} text; convert it: iconv -f {name} -t UTF-8 FILE > NEW")
    for mark, name in _NOT_TEXT.items():
        if head.startswith(mark):
            raise UserError(f"{file}:1: this is {name}, not text; unpack or export it as UTF-8 text first")
    for mark, name in _TABLES.items():
        if head.startswith(mark):
            raise UserError(f"{file}:1: this is {name}, not text; give it as a file, without data.format")
    if (kind := head_kind(head)) is not None:
        raise UserError(
            f"{file}:1: this is {file_kinds()[kind].file_noun}, not text; name such files in a column of a table"
        )
    if head[8:9] == b"{" and head[4:8] == bytes(4):  # the length of the header, then the header as JSON
        raise UserError(f"{file}:1: these are the weights of a model (safetensors), not text; give UTF-8 text")
    zeros = head.count(0)
    if len(head) >= 8 and zeros * 10 >= len(head) * 3:
        if zeros in (head[0::2].count(0), head[1::2].count(0)):
            raise UserError(
                f"{file}:1: every other byte is zero: this looks like UTF-16 text without a byte order mark; "
                f"convert it: iconv -f UTF-16LE (or UTF-16BE) -t UTF-8 FILE > NEW"
            )
        raise UserError(f"{file}:1: binary data, not text; give UTF-8 text")
