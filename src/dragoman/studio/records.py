"""What crosses to the browser: one model a record. ``studio/src/records.ts`` is made from this file.

Numbers are plain, log-probabilities natural, entropies in bits. Text is carried as it is and must be shown as text.
What ends in ``Request`` goes to the server, all else comes from it or stands in a one-file page.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Problem(Record):
    """The body of every answer that is not 2xx."""

    error: str  # a sentence: what is wrong, where, what to do


# ---- runs


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


# ---- training


class Started(Record):
    update: int  # > 0: went on where it had stopped
    last_update: int
    batches: int  # in an epoch


class Stepped(Record):
    update: int
    epoch: int
    loss: float | None  # per target token, smoothing included; None: not a number
    learning_rate: float
    gradient_norm: float | None
    tokens_per_second: float
    seconds: float
    gold_share: float


class Validated(Record):
    update: int
    epoch: int
    loss: float | None  # per target token
    score: float | None  # higher is better: negated where lower is better
    metric: str  # label of the metric
    best: bool
    seconds: float
    details: dict[str, float | None]  # by name of the metric, as it is


class Stopped(Record):
    update: int
    reason: str
    finished: bool
    seconds: float


class Training(Record):
    """Events since an offset. Ask again with ``after=offset`` for what came since."""

    run: str
    offset: int  # bytes of metrics.jsonl read so far
    restarted: bool  # the file is not the one read before: forget what was read, this is all of it
    started: list[Started]
    stepped: list[Stepped]
    validated: list[Validated]
    stopped: Stopped | None  # the last event, if training has ended


# ---- audit and config


class Place(Record):
    file: str
    line: int
    reason: str


class Finding(Record):
    category: str
    title: str
    fate: str  # what became of the rows
    count: int
    places: list[Place]


class Lengths(Record):
    minimum: float
    median: float
    mean: float
    p95: float
    maximum: float


class SideStatistics(Record):
    """One side of the usable rows, where it is text."""

    side: str  # name of a source, or "target"
    characters: Lengths
    words: Lengths
    distinct_characters: int
    distinct_words: int
    words_once: int


class FileAudit(Record):
    part: str  # "train", "dev", "test"
    files: list[str]
    format: str
    summary: str
    rows: int
    used: int
    dropped: int
    distinct_sources: int
    sources_with_several_targets: int
    notes: list[str]
    findings: list[Finding]
    statistics: list[SideStatistics]


class SharedRows(Record):
    """Rows of a held-out part whose source stands in the training data too."""

    part: str
    rows: int
    total: int
    pairs: int  # with the same target


class Audit(Record):
    run: str
    train: int  # rows
    dev: int
    test: int
    held_out: str  # a sentence, or ""
    files: list[FileAudit]
    overlap: list[SharedRows]


class Setting(Record):
    path: str  # "decoder.width"
    value: str  # as JSON


class Settings(Record):
    run: str
    settings: list[Setting]


# ---- predictions


class Matrix(Record):
    """``maps`` matrices of rows × columns behind each other, row by row: weights from 0 to 1.

    ``data`` is base64 of little-endian unsigned integers; a weight is integer / 65535 (uint16) or / 255 (uint8).
    """

    maps: int
    rows: int
    columns: int
    encoding: Literal["uint16", "uint8"]
    data: str


class Media(Record):
    """What a source that is a file looks or sounds like."""

    url: str  # /api/uploads/…, or a data: address in one-file pages; "" where it is left out
    width: int | None  # of a picture, in pixels as the model sees it
    height: int | None
    reach: tuple[float, float] | None  # of a picture: the regions reach over so many of its heights and widths (≥ 1)
    seconds: float | None  # of sound
    spectrogram: (
        Matrix | None
    )  # of sound: rows are frames from the first to the last, columns are mels from low to high


class Axis(Record):
    """Which positions of the source axis belong to which source: from ``begin`` to before ``end``."""

    name: str
    kind: str
    begin: int
    end: int
    labels: list[str]
    grid: tuple[int, int] | None  # of a picture: rows and columns of regions; positions go row by row
    seconds: float | None  # of sound: how long a position lasts
    media: Media | None


class Alternative(Record):
    id: int
    text: str  # the token, made visible
    log_prob: float


class Token(Record):
    id: int
    text: str  # the token, made visible
    log_prob: float | None  # None: probability zero
    entropy: float  # bits, of the distribution it was chosen from
    rank: int  # in that distribution, from 1
    alternatives: list[Alternative]  # the likeliest, best first; the token itself is among them if it is likely enough
    forced: bool  # given, not chosen


class Output(Record):
    text: str
    score: float  # what the search ranked by
    log_prob: float
    finished: bool  # False: cut off at the length limit
    tokens: list[Token]  # the end symbol included if it was produced
    attention: Matrix | None  # one map: the mean over layers and heads; rows are tokens, columns the source axis


class Reference(Record):
    """The output that was wanted, and why it was not what was found."""

    text: str
    log_prob: float | None  # None: probability zero
    score: float | None  # as the search would have ranked it
    verdict: Literal["found", "search error", "model error"]
    sentence: str  # the verdict in words
    lost_at: int | None  # the step (from 0) at which it fell out of the beam
    margin: float | None  # by how much of summed log-probability, there
    tokens: list[Token]


class Prediction(Record):
    run: str
    input: dict[str, str]  # by name of source; a prompt stands under "source"
    outputs: list[Output]  # best first
    axes: list[Axis]
    cross: Maps
    encoder: Maps
    decoder: Maps
    search: Search
    reference: Reference | None
    unknown: dict[str, list[str]]  # by name of source: its tokens that the run does not know
    seconds: float  # of the search


class Attention(Record):
    """All maps of one hypothesis. Rows look at columns."""

    which: Literal["cross", "encoder", "decoder"]
    rows: list[str]
    columns: list[str]
    layers: int
    heads: int
    average: Matrix  # one map
    maps: Matrix | None  # layers × heads maps, layer by layer; None where they were too many for a one-file page


class Node(Record):
    """A candidate of the search."""

    id: int  # in the whole tree
    parent: int | None  # id; None at the first step
    token: int
    text: str
    log_prob: float  # of this token
    total: float  # summed over the path
    score: float  # the total after length normalisation
    fate: Literal["pruned", "kept", "finished", "cut"]
    margin: float | None  # of what was pruned: how far its total was below the worst that was taken
    outputs: list[int]  # which outputs pass here, counted from 0
    reference: bool  # does the reference pass here?


class Tree(Record):
    run: str
    steps: list[list[Node]]  # best first
    forced: int  # so many first steps had no choice
    search: Search
    outputs: list[str]  # texts
    reference: Reference | None


# ---- errors and comparison


class MetricName(Record):
    name: str
    label: str
    better: Literal["higher", "lower"]
    unit: str


class Span(Record):
    """A stretch of output and reference; where ``same`` is False either may be empty."""

    same: bool
    output: str
    reference: str


class ErrorRow(Record):
    index: int  # from 0
    line: int  # in its file
    source: dict[str, str]  # by name
    references: list[str]
    output: str
    correct: bool
    values: dict[str, float]  # by metric, of this row alone
    log_prob: float  # of the output
    reference_log_prob: float | None  # of the first reference
    source_length: int  # in tokens or positions
    output_length: int  # in tokens
    reference_length: int
    unknown: list[str]  # tokens of a text source that the run does not know
    rare: list[str]  # … that it has seen fewer than ``Errors.rare_below`` times
    spans: list[Span]  # against the closest reference


class Errors(Record):
    run: str
    file: str
    metrics: list[MetricName]  # the headline first
    evaluation: Evaluation
    rare_below: int
    rows: list[ErrorRow]
    left_out: int  # rows that the evaluation counts but that are not listed
    seconds: float


class ComparedScore(Record):
    metric: MetricName
    a: Score
    b: Score
    difference: float  # b - a
    low: float
    high: float
    p_value: float  # two-sided, by paired bootstrap
    verdict: str  # in words


class ComparedRow(Record):
    index: int
    line: int
    source: dict[str, str]
    references: list[str]
    a: str
    b: str
    a_value: float
    b_value: float
    gain: float  # of b over a, by the row's metric; positive is better whichever way the metric goes
    a_spans: list[Span]
    b_spans: list[Span]


class Comparison(Record):
    a: str  # run ids
    b: str
    a_name: str
    b_name: str
    file: str
    count: int  # rows compared
    scores: list[ComparedScore]  # the headline first
    row_metric: MetricName  # what rows are compared by
    wins: int  # rows where b is better
    losses: int
    ties: int
    rows: list[ComparedRow]  # those that differ, most first
    left_out: int


# ---- map

Layout = Literal["pca", "umap"]


class Point(Record):
    x: float
    y: float
    source: dict[str, str]
    target: str
    line: int


class RepresentationMap(Record):
    run: str
    file: str
    representation: str  # what of the source is drawn, in words
    layout: Layout
    explained: tuple[float, float] | None  # share of the variance along x and y; None where the axes mean nothing
    points: list[Point]


class Neighbour(Record):
    index: int | None  # among the points of the map, if it is drawn
    similarity: float  # cosine
    source: dict[str, str]
    target: str
    line: int


class Neighbours(Record):
    x: float  # where the input lies on the map
    y: float
    examples: int  # how many were searched
    neighbours: list[Neighbour]  # nearest first


# ---- files


class Upload(Record):
    id: str  # give it as an input, or as a file
    name: str
    kind: str  # "image", "speech", "features", or "table"
    size: int  # bytes
    url: str


# ---- requests


def whole(value: Any) -> Any:
    """Without lone surrogates, which JSON can carry but UTF-8 cannot; they are read as U+FFFD, as everywhere."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, dict):
        return {whole(key): whole(one) for key, one in value.items()}
    return [whole(one) for one in value] if isinstance(value, list) else value


class Request(Record):
    _whole = model_validator(mode="before")(whole)


class PredictRequest(Request):
    """``input`` is a text, or one by name of source; of a source that is a file, the id of an upload."""

    input: str | dict[str, str]
    beam: int | None = Field(None, ge=1, le=100)
    n_best: int | None = Field(None, ge=1, le=100)
    normalize: Literal["none", "average", "gnmt"] | None = None
    max_length: int | None = Field(None, ge=1)
    prefix: str | None = None  # text that every output must begin with …
    prefix_tokens: list[int] | None = None  # … or tokens: those before a clicked alternative, and the alternative
    forbidden: list[str] = []  # words never to be written
    reference: str | None = None
    alternatives: int = Field(8, ge=0, le=50)  # a step


class AttentionRequest(Request):
    input: str | dict[str, str]
    tokens: list[int]  # of the hypothesis: ids of Output.tokens
    which: Literal["cross", "encoder", "decoder"] = "cross"


class FileRequest(Request):
    """``file`` is a path on this machine, the id of an upload, or None: the run's own test rows (else its dev rows)."""

    file: str | None = None
    beam: int | None = Field(None, ge=1, le=100)
    limit: int = Field(2000, ge=1, le=20000)  # rows listed; all are measured


class CompareRequest(Request):
    a: str  # run ids
    b: str
    file: str | None = None  # None: the test rows of ``a``
    beam: int | None = Field(None, ge=1, le=100)
    limit: int = Field(500, ge=1, le=20000)  # rows listed


class MapRequest(Request):
    file: str | None = None  # None: the training file, if it is still there
    n: int = Field(500, ge=2, le=5000)  # points drawn
    layout: Layout = "pca"


class NeighboursRequest(Request):
    input: str | dict[str, str]
    file: str | None = None
    n: int = Field(500, ge=2, le=5000)  # as the map was asked for
    layout: Layout = "pca"  # likewise
    count: int = Field(10, ge=1, le=100)


# ---- one-file pages


class Inspected(Record):
    prediction: Prediction
    attention: list[Attention]  # of the best output
    tree: Tree | None


class Page(Record):
    """``window.__DATA__`` of a one-file page. What is None or empty has no view."""

    kind: Literal["inspect", "report"]
    title: str
    version: str  # of Dragoman
    run: Run
    inspected: list[Inspected]
    training: Training | None
    audit: Audit | None
    settings: Settings | None
    errors: Errors | None
    map: RepresentationMap | None
