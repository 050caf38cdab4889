"""The rows of a file or of two parallel files, whatever the format: TSV, JSON lines, plain text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias

from dragoman.data.audit.audit import Audit, Refusal, title
from dragoman.data.audit.cells import Cells
from dragoman.data.options import DataConfig
from dragoman.data.reading.columns import find_layout
from dragoman.data.reading.json_lines import json_parser
from dragoman.data.reading.lines import label, read_lines
from dragoman.errors import UserError

SAMPLE = 1000  # lines that format, columns and header are recognised by
BLANK: Cells = ("",)  # a blank line of running text

Row: TypeAlias = "tuple[int, Cells | Refusal]"


def is_parallel(paths: Sequence[str | Path], config: DataConfig) -> bool:
    """Tell whether these are two parallel files; refuse files that do not fit the format."""
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


def parallel_rows(paths: Sequence[str | Path], audit: Audit) -> Iterator[Row]:
    """Yield the rows of two parallel files; raise a ``UserError`` if one of them is longer."""
    source_count = target_count = 0
    blank_rest = True  # the lines that one file has more than the other are all blank
    for line, (source, target) in enumerate(zip_longest(*(read_lines(path, audit) for path in paths)), 1):
        if source is None or target is None:
            extra = target if source is None else source
            blank_rest = blank_rest and isinstance(extra, str) and not extra.strip()
            if source is None:
                target_count = line
            else:
                source_count = line
            continue
        source_count = target_count = line
        if isinstance(source, Refusal):
            yield line, source
        elif isinstance(target, Refusal):
            yield line, target
        elif not source.strip() and not target.strip():
            yield line, Refusal("blank_line", "nothing in this line of either file")
        else:
            yield line, (source, target)
    if source_count != target_count:
        first, second = audit.files
        longer = first if source_count > target_count else second
        why = (
            "the lines too many are blank: remove them"
            if blank_rest
            else "somewhere the two went out of step: repair it"
        )
        line = min(source_count, target_count) + 1
        raise UserError(
            f"{longer}:{line}: this line has no partner: {first} has {source_count:,} lines, "
            f"{second} has {target_count:,}; {why}"
        )


def single_file(path: str | Path, config: DataConfig, audit: Audit) -> tuple[tuple[str, ...], Iterator[Row]]:
    """Return the names of the sources, and the rows of one file."""
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
        names, parse, note = json_parser(readable, config.column_selection(), file)
        audit.notes.append(note)
    else:
        first = next(
            number for number, text in enumerate(sample, 1) if isinstance(text, Refusal) or not _is_blank(text)
        )
        layout = find_layout(readable, first, config.column_selection(), config.header, file)
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
    """Tell whether a line is blank. Tabs alone are a row whose sides are empty."""
    return not text or (text.isspace() and "\t" not in text)


def _guess_format(path: str | Path, text: str, config: DataConfig) -> str:
    suffix = _suffix(path)
    if suffix in (".jsonl", ".ndjson", ".json"):
        return "jsonl"
    if suffix != ".tsv" and text.lstrip().startswith('{"') and "\t" not in text:
        return "jsonl"
    return "text" if config.is_plain and config.target is None and suffix != ".tsv" else "tsv"


def _mention_tabs(readable: Sequence[tuple[int, str]], audit: Audit) -> None:
    """Note that most lines have a tab: a file of pairs may have been read by mistake."""
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
        f"none of the first {len(sample):,} lines can be used; {advice(item.category)}"
    )


def advice(category: str) -> str:
    """Return what a person can do about rows of this category."""
    if category == "invalid_utf8":
        return "if the file is Latin-1 or Windows-1252, convert it: iconv -f WINDOWS-1252 -t UTF-8 FILE > NEW"
    if category == "too_long":
        return "raise it with --set data.max_characters=… if the rows should be that long"
    return "repair the file, or name its format with --set data.format=…"
