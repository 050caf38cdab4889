"""Outputs, where they looked, and how they were found."""

from __future__ import annotations

from typing import Literal

from dragoman.studio.records.base import Record
from dragoman.studio.records.runs import Maps, Search


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
