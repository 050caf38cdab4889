"""Published data sets as rows: a source or several, and a target."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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


def write(rows: Iterable[Sequence[str]], path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    return path


@dataclass(frozen=True)
class Picture:
    path: str
    caption: str
    group: str
    split: str  # train, dev, test


def emoji(data: Path, folder: Path) -> list[Picture]:
    """The sheet cut into files, one a picture, in ``folder``."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    sheet = Image.open(data / "noto_32px.png").convert("RGB")
    pictures = []
    for line in lines(data / "index.tsv")[1:]:
        index, row, column, _, split, group, caption = line.split("\t")
        path = folder.resolve() / f"{index}.png"
        if not path.exists():
            left, top = 32 * int(column), 32 * int(row)
            sheet.crop((left, top, left + 32, top + 32)).save(path)
        pictures.append(Picture(str(path), caption, group, split))
    return pictures


@dataclass(frozen=True)
class Recording:
    path: str
    speaker: str
    take: int
    text: str


def digits(data: Path) -> list[Recording]:
    rows = [line.split("\t") for line in lines(data / "index.tsv")[1:]]
    folder = (data / "wav").resolve()
    return [Recording(str(folder / row[0]), row[2], int(Path(row[0]).stem.split("_")[2]), row[5]) for row in rows]


def digit_strings(recordings: Sequence[Recording], count: int, folder: Path) -> list[tuple[str, str]]:
    """Three to seven recordings of one speaker, one behind the other, drawn at random but always the same."""
    import soundfile

    folder.mkdir(parents=True, exist_ok=True)
    chance = random.Random(f"strings {count} {len(recordings)}")
    speakers = sorted({one.speaker for one in recordings})
    rows = []
    for number in range(count):
        of_one = [one for one in recordings if one.speaker == speakers[number % len(speakers)]]
        chosen = chance.choices(of_one, k=chance.randint(3, 7))
        path = folder.resolve() / f"{number}.wav"
        if not path.exists():
            read = [soundfile.read(one.path, dtype="int16") for one in chosen]
            soundfile.write(path, [sample for sound, _ in read for sample in sound], read[0][1])
        rows.append((str(path), " ".join(one.text for one in chosen)))
    return rows


def an4(data: Path) -> dict[str, list[tuple[str, str]]]:
    """Slices of the arrays, and words, by side."""
    sides: dict[str, list[tuple[str, str]]] = {"train": [], "dev": [], "test": []}
    for name in ("train", "test"):
        store = (data / f"{name}_mfcc.npy").resolve()
        for line in lines(data / f"{name}.tsv")[1:]:
            _, _, split, start, frames, text = line.split("\t")
            sides[split].append((f"{store}#{start}:{int(start) + int(frames)}", text))
    return sides


def vowels(data: Path, folder: Path) -> dict[str, list[tuple[str, str]]]:
    """One array a recording; every ninth of the training ones is dev."""
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    sides: dict[str, list[tuple[str, str]]] = {"train": [], "dev": [], "test": []}
    for name in ("train", "test"):
        for number, line in enumerate(lines(data / f"{name}.tsv")):
            label, frames = line.split("\t")
            path = folder.resolve() / f"{name}-{number}.npy"
            np.save(path, np.array([frame.split() for frame in frames.split("|")], dtype=np.float32))
            side = "dev" if name == "train" and number % 9 == 0 else name
            sides[side].append((str(path), f"speaker-{label}"))
    return sides


def formulas(data: Path) -> dict[str, list[tuple[str, str]]]:
    sides: dict[str, list[tuple[str, str]]] = {"train": [], "dev": [], "test": []}
    for line in lines(data / "index.tsv")[1:]:
        file, split, _, _, tokens, _ = line.split("\t")
        sides[split].append((str((data / "png" / file).resolve()), " ".join(tokens.split())))
    return sides


def stories(path: Path) -> list[tuple[str, str, str]]:
    """Story so far, question, answer: one row a question. The latest sentence comes first: a place says how long ago."""
    rows, story = [], []
    for line in lines(path):
        number, _, text = line.partition(" ")
        if number == "1":
            story = []
        if "\t" in text:
            question, answer = text.split("\t")[:2]
            rows.append((" ".join(reversed(story)), question.strip(), answer.replace(",", " ")))
        else:
            story.append(text.strip())
    return rows
