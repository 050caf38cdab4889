"""Runs and their evaluation."""

from __future__ import annotations

from typing import Literal

from dragoman.studio.records.base import Record


class Source(Record):
    """A source that a run reads."""

    name: str
    kind: str
    """The modality: "text", "image", "speech" or "features"."""
    is_file: bool
    """Whether an input is the id of an upload instead of a text."""
    encoder: str


class Search(Record):
    """The settings of a search, or those that a run searches with by default."""

    beam: int
    n_best: int
    normalize: Literal["none", "average", "gnmt"]
    alpha: float
    """Exponent of the length penalty "gnmt"."""


class Score(Record):
    """The value of a metric with its 95 % confidence interval."""

    name: str
    label: str
    value: float
    low: float
    high: float
    better: Literal["higher", "lower"]
    unit: str
    signature: str


class LengthScore(Record):
    """The headline metric of the rows whose source is ``shortest`` to ``longest`` units long."""

    shortest: int
    longest: int
    rows: int
    value: float
    low: float
    high: float


class Confusion(Record):
    """The confusion matrix, for targets that are few enough to be classes."""

    labels: list[str]
    counts: list[list[int]]
    """One row per class of the references, one column per label."""
    accuracy: float
    """In percent."""


class ReliabilityBin(Record):
    """The outputs whose confidence is from ``low`` to below ``high``."""

    low: float
    high: float
    rows: int
    confidence: float
    """Their mean; 0 if there are none."""
    right: float
    """The share that is right; 0 if there are none."""


class CoverageRisk(Record):
    """What is left wrong if only the surest outputs are kept. All are shares from 0 to 1."""

    coverage: float
    risk: float
    threshold: float
    """The lowest confidence among those kept."""


class Calibration(Record):
    """How the confidence of outputs compares with how many of them are right. Shares are from 0 to 1."""

    right: str
    """What an output has to be to count as right, in words."""
    rows: int
    accuracy: float
    mean: float
    """Of the confidences."""
    error: float
    """Expected calibration error."""
    chance: float
    """That of a perfect confidence on as many rows."""
    bins: list[ReliabilityBin]
    risks: list[CoverageRisk]
    curve: list[CoverageRisk]
    note: str


class ClassScore(Record):
    """How well one class is recognised. Shares are in percent."""

    label: str
    rows: int
    """Rows whose reference it is."""
    outputs: int
    """Rows for which it was the output."""
    precision: float
    recall: float
    f1: float


class Classes(Record):
    """The scores of all classes, and the baseline that a classifier has to beat."""

    majority: str
    """The most frequent class of the references."""
    baseline: float
    """In percent: the accuracy of answering with it always."""
    macro_f1: float
    """In percent: the mean over the classes of the references."""
    classes: list[ClassScore]
    """The most frequent first."""


class Evaluation(Record):
    """What a run scores on some rows."""

    side: str
    """Name of a part, "test" or "dev", or of a file."""
    rows: int
    references: int
    headline: str
    """Name of the headline metric."""
    scores: list[Score]
    """The headline metric first."""
    by_length: list[LengthScore]
    length_unit: str
    confusion: Confusion | None
    classes: Classes | None
    """None if the targets are no classes."""
    confidence: Calibration | None


class Maps(Record):
    """The number of attention maps: layers × heads, both 0 if there are none."""

    layers: int
    heads: int


class Run(Record):
    """A run, as far as its folder describes it."""

    id: str
    name: str
    folder: str
    preset: str
    is_language_model: bool
    """Whether the run has no source, so that its inputs are prompts."""
    is_classifier: bool
    """Whether the run answers with one of its classes."""
    sources: list[Source]
    decoder: str
    target_tokens: str
    """Kind of the target's tokenizer."""
    vocabulary: int
    """Number of target tokens."""
    parameters: int | None
    """Number of parameters, or None while the model is not loaded."""
    metric: str
    """Name of the headline metric, or "auto"."""
    search: Search
    ready: bool
    """Whether the run has weights and can predict."""
    evaluation: Evaluation | None
    held_out: Literal["test", "dev", ""]
    """Which rows of its own it is measured on: "dev" if it has no test rows, "" if they cannot be read again."""
    data: Literal["files", "memory", "missing", ""]
    """Where its rows are: in files, in files that are missing, or nowhere since they were a table in memory; "" if
    that is not known."""
    train_files: list[str]
    """Training files that still exist."""
    test_files: list[str]
    """Test files that still exist, then dev files."""
