"""Read published data sets as rows: one or several sources, and a target."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

SPACE = "␣"  # stands for a space inside a lemma


def lines(path: Path) -> list[str]:
    """Read the lines of a file, which end at the line feed only."""
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def paired(source: Path, target: Path) -> list[tuple[str, str]]:
    """Read two parallel files."""
    return list(zip(lines(source), lines(target), strict=True))


def columns(path: Path) -> list[tuple[str, str]]:
    """Read the first two columns, and skip lines without them (blank lines between sentences, for example)."""
    cells = (line.split("\t") for line in lines(path))
    return [(row[0], row[1]) for row in cells if len(row) >= 2 and row[0] and row[1]]


def inflections(path: Path) -> list[tuple[str, str]]:
    """Read lemma, form and tags as pairs: tags and letters separated by spaces, and the form.

    Tags are written in angle brackets, so that none looks like a letter.
    """
    rows = []
    for line in lines(path):
        lemma, form, tags = line.split("\t")
        letters = [SPACE if letter == " " else letter for letter in lemma]
        rows.append((" ".join([f"<{tag}>" for tag in tags.split(";")] + letters), form))
    return rows


def write(rows: Iterable[Sequence[str]], path: Path) -> Path:
    """Write rows as a table with tabs, and return its path."""
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
    """Cut the sheet of emoji into one file for each picture, in ``folder``."""
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
    """Read the index of spoken digits."""
    rows = [line.split("\t") for line in lines(data / "index.tsv")[1:]]
    folder = (data / "wav").resolve()
    return [Recording(str(folder / row[0]), row[2], int(Path(row[0]).stem.split("_")[2]), row[5]) for row in rows]


def digit_strings(recordings: Sequence[Recording], count: int, folder: Path) -> list[tuple[str, str]]:
    """Join three to seven recordings of one speaker, drawn at random but always the same."""
    import soundfile

    folder.mkdir(parents=True, exist_ok=True)
    generator = random.Random(f"strings {count} {len(recordings)}")
    speakers = sorted({recording.speaker for recording in recordings})
    rows = []
    for number in range(count):
        own = [recording for recording in recordings if recording.speaker == speakers[number % len(speakers)]]
        chosen = generator.choices(own, k=generator.randint(3, 7))
        path = folder.resolve() / f"{number}.wav"
        if not path.exists():
            sounds = [soundfile.read(recording.path, dtype="int16") for recording in chosen]
            soundfile.write(path, [sample for sound, _ in sounds for sample in sound], sounds[0][1])
        rows.append((str(path), " ".join(recording.text for recording in chosen)))
    return rows


def an4(data: Path) -> dict[str, list[tuple[str, str]]]:
    """Read slices of the arrays, and words, by split."""
    splits: dict[str, list[tuple[str, str]]] = {"train": [], "dev": [], "test": []}
    for name in ("train", "test"):
        store = (data / f"{name}_mfcc.npy").resolve()
        for line in lines(data / f"{name}.tsv")[1:]:
            _, _, split, start, frames, text = line.split("\t")
            splits[split].append((f"{store}#{start}:{int(start) + int(frames)}", text))
    return splits


def vowels(data: Path, folder: Path) -> dict[str, list[tuple[str, str]]]:
    """Write one array for each recording; every ninth training recording is dev."""
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    splits: dict[str, list[tuple[str, str]]] = {"train": [], "dev": [], "test": []}
    for name in ("train", "test"):
        for number, line in enumerate(lines(data / f"{name}.tsv")):
            label, frames = line.split("\t")
            path = folder.resolve() / f"{name}-{number}.npy"
            np.save(path, np.array([frame.split() for frame in frames.split("|")], dtype=np.float32))
            split = "dev" if name == "train" and number % 9 == 0 else name
            splits[split].append((str(path), f"speaker-{label}"))
    return splits


def formulas(data: Path) -> dict[str, list[tuple[str, str]]]:
    """Read pictures and LaTeX tokens, by split."""
    splits: dict[str, list[tuple[str, str]]] = {"train": [], "dev": [], "test": []}
    for line in lines(data / "index.tsv")[1:]:
        file, split, _, _, tokens, _ = line.split("\t")
        splits[split].append((str((data / "png" / file).resolve()), " ".join(tokens.split())))
    return splits


def stories(path: Path) -> list[tuple[str, str, str]]:
    """Read one row for each question: the story so far, the question, the answer.

    The latest sentence comes first, so that a position tells how long ago it was.
    """
    rows: list[tuple[str, str, str]] = []
    story: list[str] = []
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
