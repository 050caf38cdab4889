"""Which columns of a table are the sources of a run: by the name or the place that they had in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dragoman.config import is_near, nearest
from dragoman.data.audit.audit import Refusal
from dragoman.data.examples import SOURCE, TARGET
from dragoman.data.media import suffix_kind
from dragoman.data.reading.choosing import locate
from dragoman.data.reading.columns import ColumnName
from dragoman.data.reading.headers import SOURCE_NAMES, as_names, is_header, usual_column
from dragoman.data.reading.layout import text_columns
from dragoman.data.reading.table import Record, Table
from dragoman.data.reading.values import to_text
from dragoman.errors import UserError

if TYPE_CHECKING:
    from dragoman.inference.system import System

PROMPT_NAMES = ("prompt", "text")  # of the column of a language model's inputs


@dataclass(frozen=True, slots=True)
class WantedSource:
    """A source of a run, and how its column can be known."""

    name: str
    names: tuple[str, ...]  # that the column may have, the likeliest first
    number: int | None  # of the column in training, from 1
    is_file: bool


@dataclass(frozen=True, slots=True)
class InputColumns:
    """Where the sources are in the rows of a table."""

    places: Mapping[str, int | str]  # source → the index of its cell, or its key
    names: Sequence[str] | None  # of all columns, if they have names
    width: int | None  # columns that every row must have
    header: int | None = None  # the number of the row that is a header

    def describe(self) -> str | None:
        """Say what was decided, if there was anything to decide."""
        if self.width is None:
            return ", ".join(f"the key {key!r} is {_article(side)}" for side, key in self.places.items())
        if self.width < 2 and self.header is None:
            return None
        parts = [f"{self._column(int(place))} is {_article(side)}" for side, place in self.places.items()]
        unused = [index for index in range(self.width) if index not in self.places.values()]
        more = f" and {len(unused) - 5} more" if len(unused) > 5 else ""
        verb = "is" if len(unused) == 1 else "are"
        said = ", ".join(parts)
        if unused:
            said += f"; {', '.join(self._column(index) for index in unused[:5])}{more} {verb} not used"
        return said + ("; the first row is a header" if self.header is not None else "")

    def _column(self, index: int) -> str:
        return f"column {index + 1}" + (f" ({self.names[index]!r})" if self.names else "")

    def pick(self, record: Record, wanted: Sequence[WantedSource]) -> dict[str, str] | str:
        """Return the text of each source of a row, or what is wrong with the row."""
        texts = {}
        if self.width is not None and len(record) != self.width:
            problem = f"{_count(record)}, but the run reads {', '.join(each.name for each in wanted)}"
            if len(record) > max(int(place) for place in self.places.values()):
                problem = f"{_count(record)}, but the table has {self.width}"
            return f"{problem}; {_advice(wanted)}"
        for side, place in self.places.items():
            if isinstance(record, Mapping):
                if place not in record:
                    return f"no text under the key {place!r}"
                text = to_text(record[str(place)], f"the value of {place!r}")
            else:
                text = to_text(record[int(place)], self._column(int(place)))
            if isinstance(text, Refusal):
                return text.reason
            texts[side] = text
        return texts


def wanted_sources(system: System, selected: Sequence[ColumnName] = (), option: str = "--source") -> list[WantedSource]:
    """Return the sources of a run with what is known of their columns; ``selected`` are columns to read instead."""
    if system.is_language_model:
        place = system.columns.get(TARGET)
        own = [place.name] if place is not None and place.name else []
        known = [WantedSource(SOURCE, (*own, *PROMPT_NAMES), None if place is None else place.number, False)]
    else:
        explicit = system.recipe.reading.column_selection().sources or {}
        known = []
        for name, modality in system.modalities.items():
            place, column = system.columns.get(name), explicit.get(name)
            candidates = (column, None if place is None else place.name, name)
            names = [str(each) for each in candidates if each and not _number(each)]
            number = place.number if place is not None else _number(column)
            known.append(WantedSource(name, tuple(dict.fromkeys(names)), number, modality.is_file))
    if not selected:
        return known
    if len(selected) != len(known):
        reads = ", ".join(each.name for each in known)
        raise UserError(f"{option}: this run reads {reads}; give a column for each, in this order")
    return [
        WantedSource(each.name, () if _number(column) else (str(column),), _number(column), each.is_file)
        for each, column in zip(known, selected, strict=True)
    ]


def find_input_columns(
    table: Table,
    sample: Sequence[tuple[int, Record]],
    wanted: Sequence[WantedSource],
    header: str,
    selected: bool,
    option: str = "--source",
) -> InputColumns | None:
    """Find the sources by the first rows of a table; None where these rows do not have them.

    ``selected``: the columns were named for this table, and no others will do. ``option`` is what messages call the
    way to name them.
    """
    if table.keyed or table.names is not None:
        return _find_by_name(table, [record for _, record in sample], wanted, selected, option)
    number, first = sample[0]
    rows = [list(record) for _, record in sample]
    names = as_names(first)
    if header != "no" and (places := _named(names, wanted)) is not None:
        return InputColumns(places, names, len(first), number)
    if selected and (missing := [each.names[0] for each in wanted if each.names]):
        raise UserError(
            f"{table.place(number)}: no column is called {missing[0]!r} (there are: {', '.join(names[:12])}); "
            f"name another with {option}, or give its number"
        )
    if header != "no" and not selected and len(wanted) > 1:
        _refuse_misspelt(table.place(number), names, wanted, option)
    has_header = header != "no" and table.may_have_header and is_header(rows)
    below = next((row for row in rows[has_header:] if len(row) > 1), rows[-1])
    places = _by_place(names if has_header else None, below, wanted, selected)
    if places is None:
        return None
    return InputColumns(places, names if has_header else None, len(below), number if has_header else None)


def _refuse_misspelt(place: str, names: Sequence[str], wanted: Sequence[WantedSource], option: str) -> None:
    """Refuse a first row that names some of the sources and not all: it is a header with a mistake, not an input."""
    missing = [each for each in wanted if each.names and {*each.names}.isdisjoint(names)]
    if not missing or len(missing) == len(wanted):
        return
    taken = {name for each in wanted for name in each.names}
    others = [name for name in names if name not in taken]
    hint = f"{nearest(missing[0].names[0], others)} " if is_near(missing[0].names[0], others) else ""
    raise UserError(
        f"{place}: no column is called {missing[0].names[0]!r} (there are: {', '.join(names[:12])}); "
        f"{hint}correct the name, or name the columns with {option}"
    )


def _find_by_name(
    table: Table, rows: Sequence[Record], wanted: Sequence[WantedSource], selected: bool, option: str
) -> InputColumns | None:
    keys = dict.fromkeys(key for row in rows if isinstance(row, Mapping) for key in row)
    names = list(table.names if table.names is not None else keys)
    places = _named(names, wanted)
    if places is None and selected:
        if table.keyed or any(each.number is None for each in wanted):
            missing = next(each.names[0] for each in wanted if each.names and each.names[0] not in names)
            raise UserError(f"{table.label}: no column is called {missing!r}; there are: {', '.join(names[:12])}")
        places = {each.name: locate(each.number or 0, names, len(names), table.label) for each in wanted}
    if places is None and len(wanted) == 1:
        usual = usual_column(names, SOURCE_NAMES)
        cells = [[row.get(name) for name in names] if isinstance(row, Mapping) else row for row in rows]
        texts = text_columns(cells, names)
        if usual is not None or len(texts) == 1:
            places = {wanted[0].name: texts[0] if usual is None else usual}
    if table.keyed:
        by_key = {side: names[place] for side, place in (places or {}).items()}
        return InputColumns(by_key or {each.name: (*each.names, each.name)[0] for each in wanted}, names, None)
    if places is None:
        raise UserError(
            f"{table.label}: which columns are {', '.join(each.name for each in wanted)} is not clear; there are "
            f"{', '.join(names[:12])}; name them with {option}"
        )
    return InputColumns(places, names, len(names))


def _named(names: Sequence[str], wanted: Sequence[WantedSource]) -> dict[str, int] | None:
    """Return the place of each source if all of them are among the names of the columns."""
    places = {}
    for source in wanted:
        known = [name for name in source.names if name in names]
        if not known:
            return None
        places[source.name] = names.index(known[0])
    return places


def _by_place(
    names: Sequence[str] | None, cells: Sequence[object], wanted: Sequence[WantedSource], selected: bool
) -> dict[str, int] | None:
    """Return the place of each source in a row: by a usual name, in order, or as in training."""
    numbers = [each.number for each in wanted if each.number is not None and each.number <= len(cells)]
    are_known = len(numbers) == len(wanted)
    if selected:
        return {each.name: number - 1 for each, number in zip(wanted, numbers, strict=True)} if are_known else None
    if len(cells) == len(wanted):
        return {each.name: index for index, each in enumerate(wanted)}
    files = [index for index, cell in enumerate(cells) if isinstance(cell, str) and suffix_kind(cell.strip())]
    if len(wanted) == len(files) == 1 and wanted[0].is_file:
        return {wanted[0].name: files[0]}
    if len(wanted) == 1 and names is not None and (usual := usual_column(names, SOURCE_NAMES)) is not None:
        return {wanted[0].name: usual}
    if are_known:
        return {each.name: number - 1 for each, number in zip(wanted, numbers, strict=True)}
    if len(wanted) == 1 and len(cells) == 2 and not wanted[0].is_file:  # a source and its target
        return {wanted[0].name: 0}
    return None


def no_columns(record: Record, wanted: Sequence[WantedSource]) -> str:
    """Say that the sources are not in a row."""
    return f"{_count(record)}, but the run reads {', '.join(each.name for each in wanted)}; {_advice(wanted)}"


def _advice(wanted: Sequence[WantedSource]) -> str:
    return "give these, in this order or under a header" if len(wanted) > 1 else "name the column with --source"


def _count(record: Record) -> str:
    return f"{len(record)} column{'s' * (len(record) != 1)}"


def _article(side: str) -> str:
    return f"the {SOURCE}" if side == SOURCE else side


def _number(column: object) -> int | None:
    return int(column) if isinstance(column, (int, str)) and str(column).isdecimal() else None
