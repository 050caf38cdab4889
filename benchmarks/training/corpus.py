"""Split the parallel text into joint subword pieces, once: every contender reads the same space-separated pieces."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .job import read_lines

PIECES = 10_000  # four special symbols included
LONGEST = 100  # pieces; longer pairs are left out for everyone
SPECIALS = 4
DEV_ROWS = 200  # copies of training rows: the peers need the file, but no run lasts until validation


class MissingData(Exception):
    """The files of ``--data`` cannot be used; the message says why."""


@dataclass(frozen=True)
class Corpus:
    folder: Path
    about: str
    source_lengths: list[int]  # with the end symbol, as everywhere here
    target_lengths: list[int]
    vocabulary: int


def find(paths: list[Path], languages: tuple[str, str]) -> tuple[Path, Path]:
    """Return the two files of a folder with train.en and train.de, or of a list of two files."""
    if len(paths) > 2:
        raise MissingData("--data takes a folder or two parallel files, source first")
    files = [paths[0] / f"train.{language}" for language in languages] if len(paths) == 1 else paths
    for path in files:
        if not path.is_file():
            raise MissingData(
                f"{path}: no such file; give --data a folder with train.{languages[0]} and train.{languages[1]} "
                "(other endings: --languages), or two parallel text files"
            )
    return files[0], files[1]


def prepare(files: tuple[Path, Path], folder: Path, size: int = PIECES) -> Corpus:
    """Learn the pieces on both sides together, and write both sides as pieces."""
    import sentencepiece

    sides = [[" ".join(line.split()) for line in read_lines(path)] for path in files]
    if len(sides[0]) != len(sides[1]):
        raise MissingData(f"{files[0]} has {len(sides[0]):,} lines, {files[1]} has {len(sides[1]):,}: not parallel")
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter([*sides[0], *sides[1]]),
            model_prefix=str(folder / "pieces"),
            model_type="bpe",
            vocab_size=size,
            character_coverage=1.0,
            pad_id=SPECIALS - 1,
            minloglevel=2,
        )
    except RuntimeError as error:
        raise MissingData(
            f"no {size:,} pieces can be learnt from this text; try a smaller --pieces ({error})"
        ) from None
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "pieces.model"))
    source, target = (model.encode(side, out_type=str) for side in sides)
    pieces = [model.id_to_piece(index) for index in range(SPECIALS, model.get_piece_size())]
    return _write(folder, f"{files[0].name} and {files[1].name}", source, target, pieces)


def make_up(folder: Path, rows: int = 29_000, size: int = PIECES) -> Corpus:
    """Draw sentences of 4 to 50 pieces by Zipf's law: speed depends on lengths and sizes, not on meaning."""
    generator = np.random.default_rng(1)
    pieces = [f"p{index}" for index in range(size - SPECIALS)]
    weights = 1 / np.arange(10, len(pieces) + 10)
    lengths = np.clip(generator.lognormal(2.6, 0.32, rows), 4, 50)
    source, target = (
        [
            [pieces[index] for index in generator.choice(len(pieces), int(length), p=weights / weights.sum())]
            for length in np.clip(lengths * generator.lognormal(0, 0.15, rows), 4, 50)
        ]
        for _ in range(2)
    )
    return _write(folder, "made-up text", source, target, pieces)


def _write(folder: Path, about: str, source: list[list[str]], target: list[list[str]], pieces: list[str]) -> Corpus:
    pairs = [(s, t) for s, t in zip(source, target, strict=True) if s and t and max(len(s), len(t)) <= LONGEST]
    if not pairs:
        raise MissingData(f"{about}: no pair with text on both sides and at most {LONGEST} pieces")
    for side, index in (("source", 0), ("target", 1)):
        lines = [" ".join(pair[index]) + "\n" for pair in pairs]
        (folder / f"train.{side}").write_text("".join(lines), encoding="utf-8")
        (folder / f"dev.{side}").write_text("".join(lines[:DEV_ROWS]), encoding="utf-8")
    (folder / "vocabulary.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    about = f"{about}: {len(pairs):,} pairs" + (f" of {len(source):,}" if len(pairs) < len(source) else "")
    lengths = [[len(pair[side]) + 1 for pair in pairs] for side in (0, 1)]
    return Corpus(folder, about, lengths[0], lengths[1], len(pieces) + SPECIALS)
