"""Read what constrains outputs: from files, whose sizes are bounded, or from lists and mappings."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dragoman.data.examples import tidy
from dragoman.errors import UserError
from dragoman.files.reading import explain_error, open_regular

MEGABYTE = 1 << 20
MOST_BYTES = {"lexicon": 64, "glossary": 16, "known": 256, "grammar": 1, "json_schema": 1, "match": 1}  # megabytes
MOST_CHARACTERS = {"lexicon": 1_000, "glossary": 500, "known": 10_000}  # of one entry
MOST_FORMAT = 100_000  # characters of a regular expression


def read_lexicon(given: Any) -> Iterator[str]:
    """Yield the entries of a lexicon."""
    if is_path(given):
        path = Path(given)
        lines: Iterable[Any] = io.BytesIO(_read("lexicon", path))
    elif isinstance(given, Iterable) and not isinstance(given, (bytes, Mapping)):
        path, lines = None, given
    else:
        raise UserError(f"lexicon: give the path of a file or a list of texts, not {type(given).__name__}")
    is_empty = True
    for number, line in enumerate(lines, 1):
        place = f"entry {number}" if path is None else f"{path}:{number}"
        text = _as_text(line, "lexicon") if path is None else _decode("lexicon", place, line)
        if len(text) > MOST_CHARACTERS["lexicon"]:
            check_length("lexicon", text, place)
        if entry := tidy(text):
            is_empty = False
            yield entry
    if is_empty:
        raise UserError("lexicon: there is no entry in it, so that no output is allowed; give a file with one per line")


def read_glossary(given: Any) -> dict[str, tuple[str, ...]]:
    """Return the variants of the target phrase by source phrase."""
    rows: list[tuple[str, str, Sequence[str]]]
    if is_path(given):
        rows = []
        for place, line in _read_lines("glossary", Path(given)):
            if line.strip():
                cells = line.split("\t")
                if len(cells) != 2:
                    raise UserError(
                        f"glossary: {place}: has {len(cells)} columns; give a source phrase, a tab, its target phrase"
                    )
                rows.append((place, cells[0], cells[1].split("|")))
    elif isinstance(given, Mapping):
        rows = [
            (
                f"{source!r}",
                _as_text(source, "glossary"),
                variants.split("|") if isinstance(variants, str) else variants,
            )
            for source, variants in given.items()
        ]
    else:
        raise UserError(
            f"glossary: give the path of a file, or a mapping from source to target phrases, not {type(given).__name__}"
        )
    terms: dict[str, tuple[str, ...]] = {}
    for place, source, variants in rows:
        source = tidy(source)
        targets = tuple(dict.fromkeys(filter(None, (tidy(_as_text(each, "glossary")) for each in variants))))
        if not source or not targets:
            raise UserError(f"glossary: {place}: a phrase is empty; give a source phrase and its target phrase")
        for text in (source, *targets):
            check_length("glossary", text, place)
        if terms.setdefault(source, targets) != targets:
            raise UserError(f"glossary: {place}: {source!r} has other targets before; separate variants by |")
    return terms


def read_known(given: Any, names: Sequence[str]) -> dict[tuple[str, ...], str]:
    """Return the known answers by their sources, in the order of ``names``."""
    rows: list[tuple[str, tuple[str, ...], str]] = []
    if is_path(given):
        for place, line in _read_lines("known", Path(given)):
            if line.strip():
                cells = line.split("\t")
                if len(cells) != len(names) + 1:
                    raise UserError(
                        f"known: {place}: has {len(cells)} columns; give {', '.join(names)} and the answer, with tabs "
                        "between them"
                    )
                rows.append((place, tuple(cells[:-1]), cells[-1]))
    elif isinstance(given, Mapping):
        for source, answer in given.items():
            cells = [source] if isinstance(source, str) else list(source)
            if len(cells) != len(names):
                raise UserError(f"known: {source!r}: this run reads {', '.join(names)}; give a text for each")
            rows.append((f"{source!r}", tuple(_as_text(cell, "known") for cell in cells), _as_text(answer, "known")))
    else:
        raise UserError(
            f"known: give the path of a file, or a mapping from sources to answers, not {type(given).__name__}"
        )
    answers: dict[tuple[str, ...], str] = {}
    for place, sources, answer in rows:
        texts, answer = tuple(map(tidy, sources)), tidy(answer)
        for text in (*texts, answer):
            check_length("known", text, place)
        if answers.setdefault(texts, answer) != answer:
            raise UserError(f"known: {place}: this source has another answer before; leave one of the two out")
    return answers


def read_format(option: str, given: Any) -> str:
    """Return the text of a regular expression, a grammar or a JSON schema. A grammar's file is given as a path."""
    if isinstance(given, os.PathLike) and option != "match":
        text = _decode(option, Path(given), _read(option, Path(given))).removeprefix("\ufeff")
    elif option == "json_schema" and isinstance(given, Mapping):
        try:
            text = json.dumps(given)
        except (TypeError, ValueError) as error:
            raise UserError(f"json_schema: is not JSON ({error}); give an object of plain values") from None
    else:
        text = _as_text(given, option)
    if len(text) > MOST_FORMAT:
        raise UserError(f"{option}: has {len(text):,} characters, at most {MOST_FORMAT:,} are read; write it shorter")
    return text


def is_path(given: Any) -> bool:
    """Tell whether what was given is the path of a file."""
    return isinstance(given, (str, os.PathLike))


def check_length(option: str, text: str, place: str) -> None:
    """Refuse a text of more characters than an option reads."""
    if len(text) > MOST_CHARACTERS[option]:
        raise UserError(
            f"{option}: {place}: has {len(text):,} characters, at most {MOST_CHARACTERS[option]:,} are read; shorten it"
        )


def _as_text(value: Any, option: str) -> str:
    if not isinstance(value, str):
        raise UserError(f"{option}: expected a text, got {type(value).__name__}")
    return value


def _read(option: str, path: Path) -> bytes:
    most = MOST_BYTES[option] * MEGABYTE
    try:
        with open_regular(path) as file:
            data = file.read(most + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{option}: {path}: there is no such file; give the path of one") from None
    except OSError as error:
        raise UserError(f"{option}: {path}: cannot be read ({explain_error(error)})") from None
    except ValueError as error:  # a NUL character in the name
        raise UserError(f"{option}: {str(path)!r}: cannot be read ({error})") from None
    if len(data) > most:
        raise UserError(f"{option}: {path}: has more than {MOST_BYTES[option]} MB, which is the most that is read")
    return data


def _read_lines(option: str, path: Path) -> list[tuple[str, str]]:
    """Return the lines of a file, each with its place."""
    places = ((f"{path}:{number}", line) for number, line in enumerate(io.BytesIO(_read(option, path)), 1))
    return [(place, _decode(option, place, line).rstrip("\r\n")) for place, line in places]


def _decode(option: str, place: str | Path, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(f"{option}: {place}: is not UTF-8; save the file as UTF-8") from None
