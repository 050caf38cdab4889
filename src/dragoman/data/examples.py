"""Examples: one row each, which of them have the same source, and which are on two sides."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from os.path import normpath
from typing import Any, Literal, TypeAlias

SOURCE = "source"  # the name of a single source
TARGET = "target"  # the name of the target where sides are listed by name

Identity: TypeAlias = "str | tuple[str, ...]"
Unit: TypeAlias = Literal["line", "row"]  # what rows are counted by: the lines of a text file, or the rows of a table

# What str.strip() strips, and the byte order mark, which is white space only at the edge of a text.
_EDGES = "".join(map(chr, [*range(0x09, 0x0E), *range(0x1C, 0x21), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B)])) + (
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
LINE_BREAK = re.compile("\r\n|\n|\r")


@dataclass(frozen=True, slots=True)
class Example:
    """One usable row. A language model's row has no source."""

    sources: Mapping[str, str]  # by name, in the order of the config: a text, or the path of a file
    target: str
    line: int  # from 1, in its file; of a table without lines, the number of the row
    file: str
    unit: Unit = "line"
    written: Mapping[str, str] | None = None  # the sources as in the file, where some became paths
    made: str = ""  # how the row was made of others; empty for a row of the data

    @property
    def as_written(self) -> Mapping[str, str]:
        """The sources as in the file: the same wherever the folder is."""
        return self.sources if self.written is None else self.written


def name_place(file: str, number: int, unit: Unit = "line") -> str:
    """Return where a row is, as messages say it: ``pairs.tsv:3``, or ``row 3 of the DataFrame``."""
    return f"{file}:{number}" if unit == "line" else f"row {number} of {file}"


def tidy(text: str) -> str:
    """Return a text as training sees it: on one line, without white space around it.

    Line breaks become spaces; byte order marks at the edges are removed too. Reading a file does
    this to every text and counts it. Inputs of a trained model must be tidied too, or the model
    gets texts of a kind that it has never seen.
    """
    return LINE_BREAK.sub(" ", text).strip(_EDGES)


def identity(example: Example, as_written: bool = False) -> Identity:
    """Return what makes two examples the same input: their sources, or without any, the target.

    Two rows name the same file if its path is the same. ``as_written``: use the path as in the row,
    which does not depend on the folder.
    """
    sources = example.sources
    if as_written and example.written is not None:
        written = example.written
        sources = {
            name: written[name] if written[name] == raw else normpath(written[name]) for name, raw in sources.items()
        }
    if len(sources) == 1:
        return next(iter(sources.values()))
    if not sources:
        return example.target
    return tuple(sources[name] for name in sorted(sources))


def references(examples: Iterable[Example]) -> list[tuple[Mapping[str, str], list[str]]]:
    """Return each distinct source with its distinct targets, all in the order they first occur."""
    groups: dict[Identity, tuple[Mapping[str, str], dict[str, None]]] = {}
    for example in examples:
        _, targets = groups.setdefault(identity(example), (example.sources, {}))
        targets[example.target] = None
    return [(sources, list(targets)) for sources, targets in groups.values()]


def count_sources(examples: Sequence[Example]) -> int:
    """Return how many outputs are measured: one for each distinct source; of plain text, each row."""
    if not examples or not examples[0].sources:
        return len(examples)
    return len({identity(example) for example in examples})


@dataclass(frozen=True, slots=True)
class Shared:
    """One source that is in both files: where, and whether the target is the same too."""

    train_file: str
    train_line: int
    other_file: str
    other_line: int
    same_target: bool
    train_unit: Unit = "line"
    other_unit: Unit = "line"

    @property
    def train_place(self) -> str:
        """Where it is in the training data."""
        return name_place(self.train_file, self.train_line, self.train_unit)

    @property
    def other_place(self) -> str:
        """Where it is in the held-out data."""
        return name_place(self.other_file, self.other_line, self.other_unit)

    def __str__(self) -> str:
        what = "same source and target" if self.same_target else "same source, other target"
        return f"{self.other_place}: {what} as {self.train_place}"


@dataclass(frozen=True, slots=True)
class Overlap:
    """How much of a held-out file is in the training data too.

    Nothing is dropped because of it, but scores are too good.
    """

    rows: int  # rows of the held-out file whose source is in train
    total: int  # rows of the held-out file
    sources: int  # distinct such sources
    pairs: int  # rows whose target is in train with that source too
    shown: tuple[Shared, ...]  # the first of them
    plain: bool = False  # rows have no source

    def report(self) -> str:
        """Return the overlap in sentences."""
        if self.plain and self.rows:
            head = (
                f"{self.rows:,} of {self.total:,} held-out lines ({self.rows / self.total:.1%}) stand in the training "
                "data: scores on them flatter the model."
            )
            places = [f"  {shared.other_place}: as {shared.train_place}" for shared in self.shown]
            return "\n".join([head, *places, *(["  …"] if self.rows > len(self.shown) else [])])
        if self.plain:
            return f"None of the {self.total:,} held-out lines stands in the training data."
        if not self.rows:
            return f"None of the {self.total:,} held-out rows has its source in the training data."
        head = (
            f"{self.rows:,} of {self.total:,} held-out rows ({self.rows / self.total:.1%}) have their source in the "
            f"training data, {self.pairs:,} with the same target: scores on them flatter the model."
        )
        more = ["  …"] if self.rows > len(self.shown) else []
        return "\n".join([head, *(f"  {shared}" for shared in self.shown), *more])

    def to_json(self) -> dict[str, Any]:
        """Return the overlap as plain values."""
        shown = [asdict(shared) for shared in self.shown]
        return {"rows": self.rows, "total": self.total, "sources": self.sources, "pairs": self.pairs, "shown": shown}


def overlap(train: Iterable[Example], other: Sequence[Example], show: int = 5) -> Overlap:
    """Find the rows of ``other`` whose source is in ``train`` too."""
    first: dict[Identity, Example] = {}
    pairs: dict[tuple[Identity, str], Example] = {}
    for example in train:
        key = identity(example)
        first.setdefault(key, example)
        pairs.setdefault((key, example.target), example)
    rows = same = 0
    sources: set[Identity] = set()
    shown: list[Shared] = []
    for example in other:
        key = identity(example)
        if key not in first:
            continue
        exact = pairs.get((key, example.target))
        seen = exact or first[key]
        rows += 1
        same += exact is not None
        sources.add(key)
        if len(shown) < show:
            places = seen.file, seen.line, example.file, example.line
            shown.append(Shared(*places, exact is not None, seen.unit, example.unit))
    plain = bool(other) and not other[0].sources
    return Overlap(rows, len(other), len(sources), same, tuple(shown), plain)
