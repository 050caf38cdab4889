"""Define the shapes that every contender trains, a job (one run) and a contender."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

Shape = Literal["before", "after", "transformer"]
RECURRENT: tuple[Shape, ...] = ("before", "after")

EMBEDDING = 256
ENCODER = 256  # of one direction
DECODER = 512
DROPOUT = 0.3
SENTENCES = 80  # in a batch of the recurrent shapes

WIDTH, LAYERS, HEADS, FEED_FORWARD = 128, 4, 4, 256  # of the Transformer; layers on either side
BUDGET = 4096  # of a batch of the Transformer: sentences times the longest side
SMOOTHING = 0.1  # of the Transformer's targets

CLIP = 1.0
LEARNING_RATE = 1e-3
REPORT_EVERY = 2  # updates; few, because the slowest contender takes seconds for one
TITLES: dict[Shape, str] = {
    "before": "Bahdanau timing: additive attention before the cell",
    "after": "Luong timing: bilinear attention after the cell, no input feeding",
    "transformer": f"Transformer: {LAYERS} + {LAYERS} layers of {WIDTH}, about {BUDGET:,} tokens per batch",
}


@dataclass(frozen=True)
class Job:
    """One run of one contender."""

    corpus: str  # folder with train.source, train.target, dev.source, dev.target, vocabulary.txt
    work: str  # empty folder for what the contender writes
    shape: Shape
    threads: int
    seed: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Contender:
    """How to start a contender, read its reports and count its padding."""

    name: str
    about: str  # how it differs from the shapes above, for the table
    command: Callable[[Job], list[str]]  # may write files into the job's folder
    read: Callable[[str], float | None]  # a line of its output → target tokens per second, or None
    batches: Callable[[Shape, list[int], list[int]], list[np.ndarray]]  # source, target lengths → rows of each batch
    python: str = ""  # a peer's interpreter
    package: str = ""  # the peer's name in its own environment
    is_peer: bool = False
    shapes: tuple[Shape, ...] = RECURRENT  # that it can train


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


def token_batches(
    source_lengths: list[int], target_lengths: list[int], seed: int = 1, epoch: int = 0
) -> list[np.ndarray]:
    """Return Dragoman's batches of the Transformer, for contenders that have no rule of their own."""
    from dragoman.data.corpus.batching import make_batches

    return make_batches(source_lengths, target_lengths, BUDGET, seed=seed, epoch=epoch)


def read_ids(corpus: Path, first: int, unknown: int, end: int) -> tuple[list[list[int]], list[list[int]], int]:
    """Return source ids, target ids (both with end symbols) and the vocabulary size; pieces count from ``first``."""
    pieces = read_lines(corpus / "vocabulary.txt")
    ids = {piece: index for index, piece in enumerate(pieces, start=first)}
    sides = (
        [
            [*(ids.get(piece, unknown) for piece in line.split(" ")), end]
            for line in read_lines(corpus / f"train.{side}")
        ]
        for side in ("source", "target")
    )
    sources, targets = sides
    return sources, targets, first + len(pieces)
