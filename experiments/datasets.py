"""Published data sets as files of two columns, source and target."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

SPACE = "␣"  # a space inside a lemma


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def paired(source: Path, target: Path) -> list[tuple[str, str]]:
    """Two parallel files."""
    return list(zip(lines(source), lines(target), strict=True))


def columns(path: Path) -> list[tuple[str, str]]:
    """The first two columns; lines that have them not are no rows (blank lines between sentences, for example)."""
    cells = (line.split("\t") for line in lines(path))
    return [(row[0], row[1]) for row in cells if len(row) >= 2 and row[0] and row[1]]


def inflections(path: Path) -> list[tuple[str, str]]:
    """Lemma, form, tags → tags and letters between spaces, form. A tag in brackets is never taken for a letter."""
    rows = []
    for line in lines(path):
        lemma, form, tags = line.split("\t")
        letters = [SPACE if letter == " " else letter for letter in lemma]
        rows.append((" ".join([f"<{tag}>" for tag in tags.split(";")] + letters), form))
    return rows


def write(rows: Iterable[tuple[str, str]], path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{source}\t{target}\n" for source, target in rows), encoding="utf-8")
    return path
