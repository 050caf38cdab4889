"""Files in, examples and their audit out. Nothing is dropped, cut or changed unsaid.

What becomes of a row, in this order; the first reason to drop it is the one recorded:

- a byte order mark at the start of a line, and the CR of CR LF, are removed (repaired);
- a line that is not UTF-8, is blank, has the wrong number of columns, is not a JSON object, or lacks a key: dropped;
- line breaks inside a JSON value become spaces, because a text is one line everywhere else (repaired);
- NUL and all other control characters (C0 and C1; a tab inside JSON or parallel text is none): dropped. They are
  never data in running text, and neither deleting them nor putting a space is always right;
- white space around a text is removed (repaired); a side with nothing left is empty: dropped;
- a side of more than ``max_characters``: dropped;
- a source that is a file which is missing, damaged, cut off or too large: dropped. A column is one of files if it is
  said to be, or if most of its values end like names of pictures, recordings or feature sequences.

Running text (``running``) is one text: there a blank line is a line like any other, and lines may have any length.

Quotes, backslashes, "NA" and "null" are data. Text is not Unicode-normalised; what is not NFC is counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias

from dragoman.data.audit import CATEGORIES, Audit, fate, title
from dragoman.data.checking import Cells, check
from dragoman.data.columns import find_layout
from dragoman.data.examples import SOURCE, Example
from dragoman.data.json_lines import json_parser
from dragoman.data.lines import LINE_LIMIT, Refusal, label, read_lines
from dragoman.data.media import KINDS, recognise
from dragoman.data.media.attaching import attach
from dragoman.data.options import DataConfig
from dragoman.errors import UserError

SAMPLE = 1000  # lines looked at to tell the format, the columns and the header
BLANK: Cells = ("",)  # a blank line of running text

Row: TypeAlias = "tuple[int, Cells | Refusal]"


@dataclass(frozen=True, slots=True)
class Corpus:
    """The usable rows in file order, and the truth about the rest."""

    examples: list[Example]
    audit: Audit
    kinds: dict[str, str] = field(default_factory=dict)  # of every source: "text" or one of media.KINDS


def read(
    paths: str | Path | Sequence[str | Path],
    config: DataConfig | None = None,
    kinds: Mapping[str, str] | None = None,
) -> Corpus:
    """One TSV, JSONL or text file, or two parallel files (source, target); ``-`` is standard input; gzip or not.

    ``kinds`` says what sources are, by name: "text", "image", "speech", "features"; the others are recognised.
    """
    config = config or DataConfig()
    paths = [paths] if isinstance(paths, (str, Path)) else list(paths)
    audit = Audit(tuple(label(path) for path in paths))
    if _is_parallel(paths, config):
        audit.format = "parallel"
        names: tuple[str, ...] = (SOURCE,)
        rows = _parallel_rows(paths, audit)
        audit.notes.append("two parallel files, line by line: source, target")
        if config.source is not None or config.target is not None:
            audit.notes.append("data.source and data.target are not used: parallel files have no columns")
    else:
        names, rows = _single_file(paths[0], config, audit)
    file = audit.files[0]
    examples: list[Example] = []
    longest = LINE_LIMIT if config.running else config.max_characters
    for line, cells in rows:
        audit.rows += 1
        as_it_is = isinstance(cells, Refusal) or (config.running and cells == BLANK)
        checked = cells if as_it_is else check(cells, names, line, longest, audit)  # type: ignore[arg-type]
        if isinstance(checked, Refusal):
            audit.drop(line, checked.category, checked.reason, checked.file)
        else:
            examples.append(Example(dict(zip(names, checked, strict=False)), checked[-1], line, file))
    if not examples:
        raise _nothing_usable(audit)
    found = {name: (kinds or {}).get(name) or _recognised(examples, name, audit) for name in names}
    files = {name: kind for name, kind in found.items() if kind in KINDS}
    if files:
        folder = _folder(paths[0], config)
        examples = attach(examples, files, folder, audit)
        if not examples:
            raise _nothing_usable(audit, f"paths start from {folder}; say another folder with --root")
    audit.describe(examples)
    return Corpus(examples, audit, found)


def _recognised(examples: Sequence[Example], name: str, audit: Audit) -> str:
    kind = recognise([example.sources[name] for example in examples])
    if kind is not None:
        audit.notes.append(f"{name}: paths of files ({kind}), as their names say")
    return kind or "text"


def _folder(path: str | Path, config: DataConfig) -> str:
    """Where relative paths start."""
    if config.root is None:
        return os.path.realpath("" if str(path) == "-" else os.path.dirname(path))
    if not os.path.isdir(config.root):
        raise UserError(
            f"{label(config.root)}: no such folder; data.root (--root) is where paths in the data start from"
        )
    return os.path.realpath(config.root)


def _is_parallel(paths: Sequence[str | Path], config: DataConfig) -> bool:
    if not 1 <= len(paths) <= 2:
        raise UserError(f"{len(paths)} files given; give one (TSV, JSONL) or two parallel ones (source, target)")
    if len(paths) == 2 and config.is_plain:
        raise UserError(
            f"{label(paths[0])}, {label(paths[1])}: two files are a source and a target, but a language model has no "
            "source; give one file"
        )
    if len(paths) == 1:
        if config.format == "parallel":
            raise UserError(f"{label(paths[0])}: data.format=parallel needs two files: source, target")
        return False
    first, second = (label(path) for path in paths)
    if first == second:
        raise UserError(f"{first}: given as both source and target; give two different files")
    if config.format not in ("auto", "parallel"):
        raise UserError(f"{first}, {second}: data.format={config.format} is one file, but two are given")
    both = [_suffix(path) for path in paths]
    if config.format == "auto" and all(suffix in (".tsv", ".jsonl", ".ndjson", ".json") for suffix in both):
        raise UserError(
            f"{first}, {second}: two {both[0]} files are no source and target; give one of them, "
            f"or set data.format=parallel if each really is plain text"
        )
    return True


def _suffix(path: str | Path) -> str:
    path = Path(path)
    return (Path(path.stem) if path.suffix == ".gz" else path).suffix.lower()


def _parallel_rows(paths: Sequence[str | Path], audit: Audit) -> Iterator[Row]:
    counts = [0, 0]
    blank_rest = True  # is all that one file has more than the other blank?
    for line, (source, target) in enumerate(zip_longest(*(read_lines(path, audit) for path in paths)), 1):
        if source is None or target is None:
            extra = target if source is None else source
            blank_rest = blank_rest and isinstance(extra, str) and not extra.strip()
            counts[source is None] = line
            continue
        counts = [line, line]
        if isinstance(source, Refusal):
            yield line, source
        elif isinstance(target, Refusal):
            yield line, target
        elif not source.strip() and not target.strip():
            yield line, Refusal("blank_line", "nothing in this line of either file")
        else:
            yield line, (source, target)
    if counts[0] != counts[1]:
        first, second = audit.files
        longer = first if counts[0] > counts[1] else second
        why = (
            "the lines too many are blank: remove them"
            if blank_rest
            else "somewhere the two went out of step: repair it"
        )
        raise UserError(
            f"{longer}:{min(counts) + 1}: this line has no partner: {first} has {counts[0]:,} lines, "
            f"{second} has {counts[1]:,}; {why}"
        )


def _single_file(path: str | Path, config: DataConfig, audit: Audit) -> tuple[tuple[str, ...], Iterator[Row]]:
    """The names of the sources, and the rows."""
    file = audit.files[0]
    lines = read_lines(path, audit)
    sample = list(islice(lines, SAMPLE))
    readable = [
        (number, text) for number, text in enumerate(sample, 1) if isinstance(text, str) and not _is_blank(text)
    ]
    if not readable:
        _refuse_unreadable(sample, file)
    audit.format = config.format if config.format != "auto" else _guess_format(path, readable[0][1], config)
    header = None
    parse: Callable[[str], Cells | Refusal]
    if audit.format == "text":
        names: tuple[str, ...] = ()
        parse = _whole_line
        audit.notes.append(
            "plain text, one running text" if config.running else "plain text, one sequence a line, no source"
        )
        _mention_tabs(readable, audit)
    elif audit.format == "jsonl":
        names, parse, note = json_parser(readable, config.asked(), file)
        audit.notes.append(note)
    else:
        first = next(
            number for number, text in enumerate(sample, 1) if isinstance(text, Refusal) or not _is_blank(text)
        )
        layout = find_layout(readable, first, config.asked(), config.header, file)
        names, header = layout.sources, layout.header
        parse = _tsv_parser(layout.columns, layout.width)
        audit.notes.extend(layout.notes)
    if config.header == "yes" and audit.format != "tsv":
        audit.notes.append("data.header=yes is not used: only a TSV file has a header")

    def rows() -> Iterator[Row]:
        for number, text in enumerate(chain(sample, lines), 1):
            if isinstance(text, Refusal):
                yield number, text
            elif _is_blank(text) and config.running:
                yield number, BLANK
            elif _is_blank(text):
                yield number, Refusal("blank_line", "nothing in this line")
            elif number != header:
                yield number, parse(text)

    return names, rows()


def _is_blank(text: str) -> bool:
    """Tabs alone are columns without content: a row with empty sides, not a blank line."""
    return not text or (text.isspace() and "\t" not in text)


def _guess_format(path: str | Path, text: str, config: DataConfig) -> str:
    suffix = _suffix(path)
    if suffix in (".jsonl", ".ndjson", ".json"):
        return "jsonl"
    if suffix != ".tsv" and text.lstrip().startswith('{"') and "\t" not in text:
        return "jsonl"
    return "text" if config.is_plain and config.target is None and suffix != ".tsv" else "tsv"


def _mention_tabs(readable: Sequence[tuple[int, str]], audit: Audit) -> None:
    """A file of pairs can be read as plain text; whether that is meant, only the person knows."""
    tabbed = sum("\t" in text for _, text in readable)
    if tabbed > 0.5 * len(readable):
        audit.notes.append(
            f"{tabbed:,} of the first {len(readable):,} lines have a tab, read as a character; one column: --target N"
        )


def _whole_line(text: str) -> Cells:
    return (text,)


def _tsv_parser(columns: tuple[int, ...], width: int) -> Callable[[str], Cells | Refusal]:
    pick: Callable[[list[str]], Cells] = (
        itemgetter(*columns) if len(columns) > 1 else lambda cells: (cells[columns[0]],)
    )

    def parse(text: str) -> Cells | Refusal:
        cells = text.split("\t")
        if len(cells) != width:
            return Refusal("wrong_columns", f"{len(cells)} column{'s' * (len(cells) != 1)} instead of {width}")
        return pick(cells)

    return parse


def _refuse_unreadable(sample: Sequence[str | Refusal], file: str) -> None:
    if not sample:
        raise UserError(f"{file}: the file is empty; give a file with at least one row")
    refused = [(number, item) for number, item in enumerate(sample, 1) if isinstance(item, Refusal)]
    if not refused:
        raise UserError(f"{file}:1: the first {len(sample):,} lines are all blank; give a file with at least one row")
    number, item = refused[0]
    raise UserError(
        f"{file}:{number}: {title(item.category)} ({item.reason}); "
        f"none of the first {len(sample):,} lines can be used; {_advice(item.category)}"
    )


def _advice(category: str) -> str:
    if category == "invalid_utf8":
        return "if the file is Latin-1 or Windows-1252, convert it: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW"
    if category == "too_long":
        return "raise it with --set data.max_characters=… if the rows should be that long"
    return "repair the file, or name its format with --set data.format=…"


def _nothing_usable(audit: Audit, advice: str = "") -> UserError:
    if not audit.rows:
        return UserError(
            f"{audit.files[0]}:1: {'a header and no rows' if audit.format == 'tsv' else 'the file is empty'}; add rows"
        )
    found = [category for category in CATEGORIES if fate(category) == "dropped" and audit.count(category)]
    found.sort(key=audit.count, reverse=True)
    place = audit.findings[found[0]].places[0]
    counts = ", ".join(f"{title(category)} {audit.count(category):,}" for category in found)
    return UserError(f"{place}; none of the {audit.rows:,} rows can be used ({counts}); {advice or _advice(found[0])}")
