"""Add made-up rows to the training side of data that is split."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from dragoman.data.augment.hallucinating import hallucinate
from dragoman.data.augment.options import AugmentConfig
from dragoman.data.augment.spelling import Spelling, is_tag, spelling_of
from dragoman.data.corpus.mapped.rows import MappedRows
from dragoman.data.examples import Example, tidy
from dragoman.data.options import DataConfig
from dragoman.data.reading.read import read
from dragoman.data.splits import Data
from dragoman.errors import UserError

# The first unit of a source that is to be copied, or that is a target to go back from: one character each, so that
# every kind of tokeniser has a token for it.
COPY_MARK, BACK_MARK = "⧉", "⇄"
MADE_HEADER = "source\ttarget"  # of the files that ``dragoman augment`` writes
MOST_TARGETS = 200_000  # lines that are read of data.augment.targets


def augment_data(data: Data, config: DataConfig) -> Data:
    """Return the data with the rows that ``config.augment`` asks for, at the end of the training rows.

    Rows whose source is also a source of dev or test are left out. Each row that is made says how
    (``Example.made``); the audit of the training data counts them.
    """
    settings = config.augment
    if not settings.is_on:
        return data
    _refuse(data, config)
    made = make_rows(data, config)
    counts: dict[str, int] = {}
    for example in made:
        counts[example.made] = counts.get(example.made, 0) + 1
    audit = data.audits["train"]
    notes = [describe_made(counts, len(data.train))]
    if settings.hallucinate and counts.get("hallucinated", 0) < settings.hallucinate:
        notes.append(
            f"hallucinated: {counts.get('hallucinated', 0):,} of {settings.hallucinate:,} rows could be made; the "
            "others need rows whose source and target share three letters or more"
        )
    notes += [] if settings.targets is None else note_unread(settings.targets)
    audits = {**data.audits, "train": replace(audit, notes=[*audit.notes, *notes])}
    return replace(data, train=[*data.train, *made], audits=audits, augmented=counts)


def describe_made(counts: dict[str, int], rows: int) -> str:
    """Describe how many rows were made of how many."""
    listed = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    return f"augmented: {sum(counts.values()):,} rows for training made of {rows:,} ({listed or 'none'})"


def make_rows(data: Data, config: DataConfig) -> list[Example]:
    """Return the rows that ``config.augment`` asks for, in the order of its settings."""
    settings = config.augment
    train = list(data.train)
    (name,) = train[0].sources
    held_out = {example.sources[name] for side in (data.dev, data.test) for example in side}
    sources, targets = [row.sources[name] for row in train], [row.target for row in train]
    spellings = spelling_of(sources, name), spelling_of(targets, "target")

    def example(row: Example, source: str, target: str, made: str) -> Example:
        return Example({name: source}, target, row.line, row.file, row.unit, made=made)

    rows: list[Example] = []
    if settings.hallucinate:
        pairs = list(zip(sources, targets, strict=True))
        taken = held_out | set(sources)
        for number, source, target in hallucinate(pairs, spellings, settings.hallucinate, settings.seed, taken):
            rows.append(example(train[number], source, target, "hallucinated"))
    if settings.copy_targets:
        for row in {row.target: row for row in reversed(train)}.values():
            rows.append(example(row, *copied(row.target, spellings), "copied"))
    if settings.both_ways:
        for row in train:
            turned = turn_round(row.sources[name], row.target, spellings)
            if turned is not None:
                rows.append(example(row, *turned, "turned round"))
    if settings.rows is not None:
        rows += [replace(row, made="from a file") for row in _read_pairs(settings.rows, data, config)]
    if settings.targets is not None:
        for number, line in enumerate(read_lines(settings.targets), 1):
            place = Example({name: line}, line, number, settings.targets)
            rows.append(example(place, *copied(line, spellings), "unlabelled"))
    return [row for row in rows if row.sources[name] not in held_out]


def copied(target: str, spellings: tuple[Spelling, Spelling]) -> tuple[str, str]:
    """Return a row that copies a target."""
    return spellings[0].join([COPY_MARK, *spellings[1].units(target)]), target


def turn_round(source: str, target: str, spellings: tuple[Spelling, Spelling]) -> tuple[str, str] | None:
    """Return a row that goes from target to source; tags stay where they are. None: nothing but tags is left."""
    units = spellings[0].units(source)
    tags, letters = [unit for unit in units if is_tag(unit)], [unit for unit in units if not is_tag(unit)]
    if not letters:
        return None
    return spellings[0].join([BACK_MARK, *tags, *spellings[1].units(target)]), spellings[1].join(letters)


def read_lines(path: str | Path) -> list[str]:
    """Read the distinct lines of a text file, in order, without those that are blank: of the first ``MOST_TARGETS``."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = dict.fromkeys(map(tidy, islice(file, MOST_TARGETS)))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from None
    lines.pop("", None)
    if not lines:
        raise UserError(f"{path}: it has no line with text")
    return list(lines)


def note_unread(path: str | Path) -> list[str]:
    """Say how many lines of a text file ``read_lines`` does not read, if there are any."""
    with open(path, "rb") as file:
        lines = sum(1 for _ in file)
    if lines <= MOST_TARGETS:
        return []
    return [
        f"{path}: the first {MOST_TARGETS:,} of its {lines:,} lines are read; {lines - MOST_TARGETS:,} are not used"
    ]


def _read_pairs(path: str, data: Data, config: DataConfig) -> Sequence[Example]:
    """Read a file of more pairs, written by ``dragoman augment`` or in the form of the training data."""
    plain = config.model_copy(update={"augment": AugmentConfig(), "store": "memory"})
    if _starts_with(path, MADE_HEADER):
        columns = {"format": "tsv", "header": "yes", "source": "source", "target": "target"}
        plain = plain.model_copy(update=columns)
    (name,) = data.train[0].sources
    rows = read(path, plain, data.kinds if name == "source" else None).examples
    return [replace(row, sources={name: next(iter(row.sources.values()))}) for row in rows]


def _starts_with(path: str, header: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.readline(len(header) + 2).rstrip(b"\r\n") == header.encode()
    except OSError:
        return False  # reading it says what is wrong


def _refuse(data: Data, config: DataConfig) -> None:
    """Refuse data that no rows can be made of."""
    reasons: Iterable[tuple[bool, Callable[[], str]]] = (
        (isinstance(data.train, MappedRows), lambda: "the rows are on disk, and made-up rows have to be in memory; "
            "--set data.store=memory keeps all in memory"),
        (config.running, lambda: "running text has no rows"),
        (len(data.kinds) != 1, lambda: f"rows are made of one source and a target, but the data has {len(data.kinds)} "
            "sources"),
        (set(data.kinds.values()) != {"text"}, lambda: "rows can be made of text only, and the source is "
            f"{', '.join(data.kinds.values())}"),
    )  # fmt: skip
    for refused, sentence in reasons:
        if refused:
            raise UserError(f"data.augment: {sentence()}; or leave data.augment out")
