"""The audit of a file: every row dropped or repaired and every oddity, counted, by line number.

``rows == used + dropped`` always holds. A row is dropped for one reason, the first that was found.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from dragoman.data.audit.file_statistics import FileStatistics
from dragoman.data.audit.text_statistics import TextStatistics
from dragoman.data.examples import TARGET, Example, Identity, Unit, identity, name_place
from dragoman.tables import html_text, make_frame

Fate = Literal["dropped", "repaired", "kept"]

# What can be wrong with a row: what happens to it, and the title in the report, which has this order.
CATEGORIES: dict[str, tuple[Fate, str]] = {
    "blank_line": ("dropped", "blank line"),
    "wrong_columns": ("dropped", "wrong number of columns"),
    "invalid_json": ("dropped", "not a JSON object"),
    "invalid_csv": ("dropped", "not a CSV record"),
    "missing_key": ("dropped", "key missing or not text"),
    "empty_side": ("dropped", "empty side"),
    "invalid_utf8": ("dropped", "invalid UTF-8"),
    "control_character": ("dropped", "control character"),
    "too_long": ("dropped", "too long"),
    "missing_file": ("dropped", "file not found"),
    "remote_file": ("dropped", "not a file but an address"),
    "unreadable_file": ("dropped", "file that cannot be read"),
    "truncated_file": ("dropped", "file cut off"),
    "too_large": ("dropped", "file with too much in it"),
    "wrong_shape": ("dropped", "features of the wrong shape"),
    "wrong_place": ("dropped", "no such place in a store"),
    "not_finite": ("dropped", "numbers that are not finite"),
    "byte_order_mark": ("repaired", "byte order mark removed"),
    "crlf": ("repaired", "CR LF line end made LF"),
    "line_break": ("repaired", "line break inside made space"),
    "white_space": ("repaired", "white space around removed"),
    "duplicate": ("kept", "exact duplicate"),
    "several_targets": ("kept", "another target for a source"),
    "copy": ("kept", "target equals source"),
    "not_nfc": ("kept", "Unicode not in form NFC"),
    "invisible": ("kept", "invisible characters"),
    "replacement_character": ("kept", "damaged character U+FFFD"),
}

EXAMPLES = 5  # places listed for each category; the count is always complete
BROKEN = 1000  # most rows with an unusable file that are listed one by one
BROKEN_SHOWN = 20  # and in the report
WIDTH = 118  # characters of a line of the report, unless the terminal is narrower
_LABEL, _CELL = 40, 26  # characters of the columns of the table


def fate(category: str) -> Fate:
    """Return what happens to a row of this category. Categories of later stages drop it."""
    return CATEGORIES[category][0] if category in CATEGORIES else "dropped"


def title(category: str) -> str:
    """Return the title of a category in the report."""
    return CATEGORIES[category][1] if category in CATEGORIES else category.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a line cannot be used as a row."""

    category: str
    reason: str
    file: str | None = None  # if it is not the first of the audit's files
    text: str = ""  # the line with signs in place of its undecodable bytes: its quotes may begin or end a record


@dataclass(frozen=True, slots=True)
class Place:
    """A row of a file, and what is to be said about it."""

    file: str
    line: int
    reason: str
    unit: Unit = "line"

    def __str__(self) -> str:
        return f"{name_place(self.file, self.line, self.unit)}: {self.reason}"


@dataclass(slots=True)
class Finding:
    """How often one category occurred, and the first few places."""

    count: int = 0
    places: list[Place] = field(default_factory=list)


@dataclass(slots=True, repr=False)
class Audit:
    """What reading did and saw. ``statistics`` describe the usable rows, by side."""

    files: tuple[str, ...]
    format: str = ""
    notes: list[str] = field(default_factory=list)  # decisions about columns and header, and how to change them
    unit: Unit = "line"  # what the numbers of rows count
    rows: int = 0  # rows of the file without the header
    findings: dict[str, Finding] = field(default_factory=dict)
    sources: int = 0  # distinct sources
    several: int = 0  # distinct sources with more than one target
    statistics: dict[str, TextStatistics] = field(default_factory=dict)
    media: dict[str, FileStatistics] = field(default_factory=dict)  # of the sources that are files
    broken: list[Place] = field(default_factory=list)  # rows dropped because of a file; each may need another repair
    dropped_before: int = field(default=0, repr=False)  # rows of an audit that was read back
    dropped_rows: set[tuple[str, int]] = field(default_factory=set, repr=False)  # files and line numbers

    @property
    def dropped(self) -> int:
        """The number of rows that are not used."""
        return self.dropped_before + len(self.dropped_rows)

    @property
    def used(self) -> int:
        """The number of rows that are used."""
        return self.rows - self.dropped

    def count(self, category: str) -> int:
        """Return how often a category occurred."""
        return self.findings[category].count if category in self.findings else 0

    def record(self, category: str, line: int, reason: str, file: str | None = None) -> None:
        """Record a repair, or an oddity of a row that is kept."""
        finding = self.findings.get(category)
        if finding is None:
            finding = self.findings[category] = Finding()
        finding.count += 1
        if len(finding.places) < EXAMPLES:
            finding.places.append(Place(file or self.files[0], line, reason, self.unit))

    def record_many(self, category: str, count: int, places: Sequence[Place]) -> None:
        """Record oddities that were found together. ``places``: the first of them."""
        if count:
            finding = self.findings.setdefault(category, Finding())
            finding.count += count
            finding.places += places[: EXAMPLES - len(finding.places)]

    def drop(self, row: Example | int, category: str, reason: str, file: str | None = None) -> None:
        """Record that a row will not be used, and why.

        Later stages call this too. A row is dropped only once.
        """
        if fate(category) != "dropped":
            raise ValueError(f"{category!r} is no reason to drop a row")
        line, place = (row.line, row.file) if isinstance(row, Example) else (row, self.files[0])
        if (place, line) in self.dropped_rows:
            return
        self.dropped_rows.add((place, line))
        self.record(category, line, reason, row.file if isinstance(row, Example) else file)

    def drop_file(self, row: Example, category: str, reason: str) -> None:
        """Record that a row will not be used because of a file that it names."""
        self.drop(row, category, reason)
        if len(self.broken) < BROKEN:
            self.broken.append(Place(row.file, row.line, reason, row.unit))

    def describe(self, examples: Sequence[Example]) -> None:
        """Find duplicates and sources with several targets, and describe the usable rows."""
        first: dict[Identity, Example] = {}
        pairs: dict[tuple[Identity, str], Example] = {}
        several: set[Identity] = set()
        for example in examples:
            key, line = identity(example), example.line
            if not key and not example.sources:  # a blank line of running text
                continue
            pair = (key, example.target)
            if pair in pairs:
                self.record("duplicate", line, f"repeats {name_earlier(pairs[pair], example)}", example.file)
                continue
            pairs[pair] = example
            if key in first:
                several.add(key)
                self.record("several_targets", line, f"the source of {name_earlier(first[key], example)}", example.file)
            else:
                first[key] = example
        self.sources, self.several = len(first), len(several)
        names = [name for name in examples[0].sources if name not in self.media] if examples else []
        self.statistics = {name: TextStatistics.of(example.sources[name] for example in examples) for name in names}
        self.statistics[TARGET] = TextStatistics.of(example.target for example in examples)

    def __repr__(self) -> str:
        return f"Audit({' + '.join(self.files)}: {self.summary()})"

    def _repr_html_(self) -> str:
        return html_text(self.report())

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with one row for each kind of finding."""
        return make_frame(self.to_rows())

    def to_rows(self) -> list[dict[str, Any]]:
        """Return the findings as rows of a table, each with the first place where it was found."""
        return [
            {
                "finding": title(category),
                "fate": fate(category),
                "count": finding.count,
                "first": str(finding.places[0]) if finding.places else "",
            }
            for category, finding in self.findings.items()
        ]

    def summary(self) -> str:
        """Return the number of rows used, in words."""
        share = f" ({self.used / self.rows:.1%})" if self.rows else ""
        return f"{self.used:,} of {self.rows:,} rows used{share}"

    def report(self, width: int = WIDTH) -> str:
        """Return the report for a terminal of ``width`` columns: about forty lines, and the unusable files."""
        width = max(_LABEL + 20, min(width, WIDTH))
        summary, names = self.summary(), " + ".join(self.files)
        free = width - len(summary) - 2
        names = names if len(names) <= free else "…" + names[1 - free :]  # the end of a path says most
        lines = [f"{names}: {summary}"]
        for note in self.notes:  # never cut: they say what to type
            lines += textwrap.wrap(note, width, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)
        if self.dropped > 0.1 * self.rows:
            lines.append(
                f"  Attention: {self.dropped / self.rows:.0%} of the rows are not used. Is the file what it should be?"
            )
        lines += self._section("Dropped", "dropped", width)
        lines += [f"    {place}" for place in self.broken[:BROKEN_SHOWN]]
        if len(self.broken) > BROKEN_SHOWN:
            lines.append(f"    … and more; --json names {min(len(self.broken), BROKEN):,}")
        lines += self._section("Repaired", "repaired", width)
        lines += self._section("Kept, but worth knowing", "kept", width)
        if self.statistics:
            lines += ["", *_tables(self.statistics, width)]
        if self.several:
            lines.append(f"  {self.several:,} of {self.sources:,} distinct sources have several targets; all are kept")
        for name, media in self.media.items():
            lines += ["", *media.lines(name, width)]
        return "\n".join(folded for line in lines for folded in _fit(line, width))

    def _section(self, heading: str, wanted: Fate, width: int) -> list[str]:
        known = [category for category in CATEGORIES if category in self.findings]
        later = [category for category in self.findings if category not in CATEGORIES]
        categories = [category for category in known + later if fate(category) == wanted]
        if not categories:
            return []
        total = f": {self.dropped:,} rows" if wanted == "dropped" else ""
        lines = ["", f"{heading}{total}"]
        for category in categories:
            finding = self.findings[category]
            numbers = ", ".join(f"{place.line}" for place in finding.places)
            more = ", …" if finding.count > len(finding.places) else ""
            word = f"{self.unit} " if finding.count == 1 else f"{self.unit}s"
            line = f"  {title(category):<29}{finding.count:>9,}  {word} {numbers}{more}"
            reason = f"({finding.places[0].reason})"
            # a limit of training is named at the end of the reason, which is not cut then
            is_cut = len(line) + len(reason) >= width and (category in later or width < WIDTH)
            if is_cut and width < WIDTH:  # the places go below, folded as one text
                lines += [line[:_LABEL], f"    {line[_LABEL:].strip()} {reason}"]
            else:
                lines += [line, f"    {reason}"] if is_cut else [f"{line} {reason}"]
        return lines

    def to_json(self) -> dict[str, Any]:
        findings = {
            category: {
                "fate": fate(category),
                "title": title(category),
                "count": finding.count,
                "places": [asdict(place) for place in finding.places],
            }
            for category, finding in self.findings.items()
        }
        return {
            "files": list(self.files),
            "format": self.format,
            "notes": list(self.notes),
            "unit": self.unit,
            "rows": self.rows,
            "used": self.used,
            "dropped": self.dropped,
            "summary": self.summary(),
            "distinct_sources": self.sources,
            "sources_with_several_targets": self.several,
            "findings": findings,
            "statistics": {side: statistics.to_json() for side, statistics in self.statistics.items()},
            "media": {side: statistics.to_json() for side, statistics in self.media.items()},
            "broken_files": [asdict(place) for place in self.broken],
        }


def name_earlier(earlier: Example, example: Example) -> str:
    """Return where an earlier row is, as said beside ``example``."""
    return f"{earlier.unit} {earlier.line}" + (f" of {earlier.file}" if earlier.file != example.file else "")


def _fit(line: str, width: int) -> list[str]:
    """Return a line of the report as lines that fit the terminal.

    At full width a line is cut, except for a place, whose reason is at the end. On a narrow terminal it is folded.
    """
    if len(line) <= width:
        return [line]
    if width == WIDTH:
        return [line if line.startswith("    ") else line[: width - 1] + "…"]
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(
        line, width, subsequent_indent=indent if len(indent) > 2 else indent + "    ", break_on_hyphens=False
    )


def _tables(statistics: dict[str, TextStatistics], width: int) -> Iterable[str]:
    """Yield a table with a column for each side, or tables of as many sides as fit side by side."""
    names = list(statistics)
    cell = _CELL if _LABEL + _CELL * len(names) <= width else min(_CELL, width - _LABEL)
    together = max(1, (width - _LABEL) // cell)
    for begin in range(0, len(names), together):
        yield from [""] * (begin > 0)
        yield from _table({name: statistics[name] for name in names[begin : begin + together]}, cell)


def _table(statistics: dict[str, TextStatistics], width: int) -> Iterable[str]:
    """Yield a table with one column, of ``width`` characters, per side and one line per measure."""
    sides = list(statistics.values())

    def line(label: str, cells: Iterable[str]) -> str:
        return f"  {label:<{_LABEL - 2}}" + "".join(f"{cell:>{width}}" for cell in cells)

    yield "Text" + line("", (name[: width - 2] for name in statistics))[4:]
    for label, lengths in (
        ("characters", [side.characters for side in sides]),
        ("words", [side.words for side in sides]),
    ):
        yield line(
            f"{label + ',':<12}min/median/mean/95 %/max",
            (f"{each.minimum}/{each.median:g}/{each.mean:.1f}/{each.p95}/{each.maximum}" for each in lengths),
        )
    yield line("distinct characters", (f"{side.distinct_characters:,}" for side in sides))
    yield line("distinct words", (f"{_about(side)}{side.distinct_words:,}" for side in sides))
    yield line("of these seen once", (f"{_about(side)}{side.words_once:,}" for side in sides))
    yield line("characters per word", (f"{side.mean_word_length:.1f}" for side in sides))
    yield line("rows of one word", (f"{side.one_word_share:.0%}" for side in sides))
    yield line("rows of short spaced symbols", (f"{side.spaced_share:.0%}" for side in sides))
    if any(side.has_tags for side in sides):
        shown = (f"{side.distinct_tags:,} in {side.tagged_share:.0%}" for side in sides)
        yield line("tags in angle brackets, and their rows", shown)


def _about(side: TextStatistics) -> str:
    return "about " if side.estimated else ""
