"""Runs, and what was measured of them."""

from __future__ import annotations

from typing import Literal

from dragoman.studio.records.base import Record


class Source(Record):
    name: str
    kind: str  # "text", "image", "speech", "features"
    is_file: bool  # an input is the id of an upload, not a text
    encoder: str


class Search(Record):
    """How was searched, or how the run searches if nothing is said."""

    beam: int
    n_best: int
    normalize: Literal["none", "average", "gnmt"]
    alpha: float  # of gnmt


class Score(Record):
    name: str
    label: str
    value: float
    low: float  # 95 % interval
    high: float
    better: Literal["higher", "lower"]
    unit: str
    signature: str


class LengthScore(Record):
    """The headline metric of the rows whose source is so long."""

    shortest: int
    longest: int
    rows: int
    value: float
    low: float
    high: float


class Confusion(Record):
    """Where targets are few, and so classes: how often each was taken for which."""

    labels: list[str]
    counts: list[list[int]]  # a row a class of the references, a column a label
    accuracy: float  # %


class Evaluation(Record):
    side: str  # "test", "dev", or the name of a file
    rows: int
    references: int
    headline: str  # name of the metric
    scores: list[Score]  # the headline first
    by_length: list[LengthScore]
    length_unit: str
    confusion: Confusion | None


class Maps(Record):
    """How many attention maps there are: layers × heads; 0 × 0 where there are none."""

    layers: int
    heads: int


class Run(Record):
    id: str
    name: str
    folder: str
    preset: str
    is_language_model: bool  # has no source: its inputs are prompts
    sources: list[Source]
    decoder: str
    target_tokens: str  # kind of tokeniser
    vocabulary: int  # target tokens
    parameters: int | None  # None while the model is not loaded
    metric: str  # name of the headline metric, or "auto"
    search: Search
    ready: bool  # has weights: can be asked for predictions
    evaluation: Evaluation | None
    train_files: list[str]  # that are still there
    test_files: list[str]  # that are still there
