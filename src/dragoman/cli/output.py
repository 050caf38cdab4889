"""Where ``predict`` writes, and which of the inputs it predicts: for large files and job arrays."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple, TypeVar

from dragoman.errors import UserError

Item = TypeVar("Item")
_BLOCK = 1 << 20


@dataclass(frozen=True, slots=True)
class Shard:
    """One of ``count`` parts of the inputs: every ``count``-th, from number ``index`` (from 1) on."""

    index: int = 1
    count: int = 1

    @classmethod
    def parse(cls, text: str | None) -> Shard:
        """Return what ``--shard`` says."""
        if text is None:
            return cls()
        match = re.fullmatch(r"(\d+)/(\d+)", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise UserError(f"--shard {text}: give the part and the number of parts, from 1/N to N/N, for example 2/8")
        return cls(int(match[1]), int(match[2]))

    def pick(self, items: Iterable[Item]) -> Iterator[tuple[int, Item]]:
        """Yield the items of this part, each with its number among all, from 0."""
        return islice(enumerate(items), self.index - 1, None, self.count)


class Output(NamedTuple):
    """A stream for lines, and how many of them are there already."""

    stream: BinaryIO
    lines: int


@contextmanager
def open_output(path: Path | None, resume: bool) -> Iterator[Output]:
    """Open a file, or standard output. ``resume``: keep its complete lines and go on after them."""
    if path is None:
        if resume:
            raise UserError("--resume goes on with a file; name it with --out")
        yield Output(sys.stdout.buffer, 0)
        return
    try:
        status = os.stat(path)
    except FileNotFoundError:
        status = None
    if status is not None and not stat.S_ISREG(status.st_mode):
        raise UserError(f"--out {path}: not an ordinary file; give the name of a file")
    if status is not None and not resume:
        raise UserError(f"--out {path}: the file is there already; --resume goes on with it, or delete it")
    try:
        with open(path, "r+b" if status is not None else "xb") as stream:
            yield Output(stream, _keep_complete_lines(stream) if status is not None else 0)
    except FileNotFoundError:
        raise UserError(f"--out {path}: its folder does not exist; create it first") from None


@contextmanager
def open_also(path: Path | None, resume: bool, option: str) -> Iterator[BinaryIO | None]:
    """Open a second file for lines, which belongs to the output. ``resume``: go on after what is there."""
    if path is None:
        yield None
        return
    if path.exists() and not (resume and path.is_file()):
        raise UserError(f"{option} {path}: the file is there already; delete it, or name another")
    try:
        with open(path, "ab" if resume else "xb") as stream:
            yield stream
    except FileNotFoundError:
        raise UserError(f"{option} {path}: its folder does not exist; create it first") from None


def _keep_complete_lines(stream: BinaryIO) -> int:
    """Cut off a last line without its end, go to the end of the file, and return the number of lines."""
    lines = complete = position = 0
    while block := stream.read(_BLOCK):
        lines += block.count(b"\n")
        if b"\n" in block:
            complete = position + block.rindex(b"\n") + 1
        position += len(block)
    stream.seek(complete)
    stream.truncate()
    return lines
