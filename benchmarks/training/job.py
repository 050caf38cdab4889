"""What a contender is asked to do, and what a contender is. Everyone trains the shape that is written here."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import numpy as np

Timing = Literal["before", "after"]

EMBEDDING = 256
ENCODER = 256  # of one direction
DECODER = 512
DROPOUT = 0.3
SENTENCES = 80  # a batch
CLIP = 1.0
LEARNING_RATE = 1e-3
REPORT_EVERY = 2  # updates: short, because the slowest contender needs seconds for one
TITLES: dict[Timing, str] = {
    "before": "Bahdanau timing: additive attention before the cell",
    "after": "Luong timing: bilinear attention after the cell, no input feeding",
}


@dataclass(frozen=True)
class Job:
    """One run of one contender."""

    corpus: str  # folder with train.source, train.target, dev.source, dev.target, vocabulary.txt
    work: str  # empty folder for what the contender writes
    timing: Timing
    threads: int
    seed: int

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Contender:
    """How a contender is started, how its report is read, how it makes its batches."""

    name: str
    about: str  # how it differs from the shape above, for the table
    command: Callable[[Job], list[str]]  # writes what it needs into the job's folder
    read: Callable[[str], float | None]  # a line of its output → target tokens a second, if the line reports them
    batches: Callable[[list[int], list[int]], list[np.ndarray]]  # source and target lengths → rows of each batch
    python: str = ""  # a peer's interpreter
    package: str = ""  # the peer's name in its own environment
    is_peer: bool = False


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
