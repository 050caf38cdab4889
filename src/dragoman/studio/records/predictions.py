"""Outputs, their attention, and the search that found them."""

from __future__ import annotations

from typing import Literal

from dragoman.studio.records.base import Record
from dragoman.studio.records.runs import Maps, Search


class Matrix(Record):
    """Matrices of weights from 0 to 1, one after the other, row by row.

    ``data`` is base64 of little-endian unsigned integers; a weight is integer / 65535 (uint16) or /
    255 (uint8).
    """

    maps: int
    """Number of matrices."""
    rows: int
    columns: int
    encoding: Literal["uint16", "uint8"]
    data: str


class Media(Record):
    """A source that is a file, to draw attention over."""

    url: str
    """/api/uploads/…, or a data URL in one-file pages; "" if the file is left out."""
    width: int | None
    """Of a picture: pixels, as the model sees it."""
    height: int | None
    """Of a picture: pixels, as the model sees it."""
    reach: tuple[float, float] | None
    """Of a picture: height and width that the regions cover, as multiples (≥ 1) of its own."""
    seconds: float | None
    """Of sound: its duration."""
    spectrogram: Matrix | None
    """Of sound: rows are frames in their order, columns are mel bands from low to high."""


class Axis(Record):
    """The positions of one source along the axis of attention: ``begin`` to before ``end``."""

    name: str
    kind: str
    begin: int
    end: int
    labels: list[str]
    grid: tuple[int, int] | None
    """Of a picture: rows and columns of regions; positions go row by row."""
    seconds: float | None
    """Of sound: the duration of a position."""
    media: Media | None


class Alternative(Record):
    """A token that could have been chosen."""

    id: int
    text: str
    """The token, with invisible characters made visible."""
    log_prob: float
    """The model's own."""
    probability: float
    """To be shown: without label smoothing."""


class Token(Record):
    """A token of an output."""

    id: int
    text: str
    """The token, with invisible characters made visible."""
    log_prob: float | None
    """The model's own; None if the probability is zero."""
    probability: float
    """To be shown: without label smoothing."""
    entropy: float
    """Bits of the distribution that the token was chosen from, without label smoothing."""
    rank: int
    """Rank in that distribution among the tokens that the search may write, from 1."""
    alternatives: list[Alternative]
    """The likeliest tokens that the search may write, best first; the token itself may be one of them."""
    forced: bool
    """Whether the token was given, not chosen."""


class Output(Record):
    """One output for an input."""

    text: str
    score: float
    """What the search ranked by."""
    log_prob: float
    confidence: float | None
    """The probability that it is right; None if the run has none fitted."""
    finished: bool
    """False if the output was cut off at the length limit."""
    tokens: list[Token]
    """With the end symbol if it was produced."""
    attention: Matrix | None
    """The mean over layers and heads, one map: rows are tokens, columns the source axis."""


class Reference(Record):
    """The expected output, and why the search did not find it."""

    text: str
    log_prob: float | None
    """None if the probability is zero."""
    score: float | None
    """What the search would have ranked it by."""
    verdict: Literal["found", "excluded", "search error", "model error"]
    """Excluded: the forced beginning, or what is banned, does not permit it."""
    sentence: str
    """The verdict in words."""
    lost_at: int | None
    """The step, from 0, at which it fell out of the beam."""
    margin: float | None
    """How far its summed log-probability was below the beam at that step."""
    tokens: list[Token]


class ClassProbability(Record):
    """The probability of one class of a classifier."""

    label: str
    probability: float
    """To be shown: without label smoothing, divided by the sum over the classes."""


class Prediction(Record):
    """The outputs for an input."""

    run: str
    input: dict[str, str]
    """By source; a prompt is under "source"."""
    outputs: list[Output]
    """Best first."""
    classes: list[ClassProbability]
    """All classes of a classifier, the likeliest first."""
    axes: list[Axis]
    cross: Maps
    encoder: Maps
    decoder: Maps
    search: Search
    reference: Reference | None
    right: str
    """What an output has to be to count as right, in words; "" if the run has no confidence."""
    confidence_note: str
    """Why the confidence may be off; "" if it was fitted with these search settings."""
    unknown: dict[str, list[str]]
    """Words with unknown tokens, by source."""
    seconds: float
    """Duration of the search."""


class Attention(Record):
    """All attention maps of one output. Rows attend to columns."""

    which: Literal["cross", "encoder", "decoder"]
    rows: list[str]
    columns: list[str]
    layers: int
    heads: int
    average: Matrix
    """One map."""
    maps: Matrix | None
    """layers × heads maps, layer by layer; None if a one-file page had no room for them."""


class Node(Record):
    """A candidate of the search."""

    id: int
    """Unique in the tree."""
    parent: int | None
    """Id of the candidate before it; None at the first step."""
    token: int
    text: str
    log_prob: float
    """Of this token."""
    probability: float
    """Of this token, to be shown: without label smoothing."""
    total: float
    """Sum of the log-probabilities of its path."""
    score: float
    """The total after length normalisation."""
    fate: Literal["pruned", "kept", "finished", "cut"]
    margin: float | None
    """Of a pruned candidate: how far its total was below the lowest that was taken."""
    outputs: list[int]
    """The outputs whose path goes through it, counted from 0."""
    reference: bool
    """Whether the path of the reference goes through it."""


class Tree(Record):
    """All candidates of a search, step by step."""

    run: str
    steps: list[list[Node]]
    """The candidates of each step, best first."""
    forced: int
    """Number of first steps whose token was given."""
    search: Search
    outputs: list[str]
    """The texts of the outputs."""
    reference: Reference | None
