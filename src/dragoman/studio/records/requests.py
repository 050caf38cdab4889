"""What the browser sends to the server."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dragoman.serving.records import Request as Request
from dragoman.serving.records import replace_surrogates as replace_surrogates
from dragoman.studio.records.base import Record
from dragoman.studio.records.representation_map import Layout


class Upload(Record):
    """A file that was uploaded."""

    id: str
    """To be given as an input, or as a file."""
    name: str
    kind: str
    """Kind of the file: "image", "speech", "features" or "table"."""
    size: int
    """In bytes."""
    url: str


class PredictRequest(Request):
    """A request for the outputs of an input."""

    input: str | dict[str, str]
    """A text, or several by source; for a source that is a file, the id of an upload."""
    beam: int | None = Field(None, ge=1)
    n_best: int | None = Field(None, ge=1)
    normalize: Literal["none", "average", "gnmt"] | None = None
    max_length: int | None = Field(None, ge=1)
    prefix: str | None = None
    """A text that every output has to begin with."""
    prefix_tokens: list[int] | None = None
    """The same as tokens: those before an alternative that was clicked, and the alternative."""
    forbidden: list[str] = Field(default=[])
    """Texts that no output may contain."""
    reference: str | None = None
    alternatives: int = Field(8, ge=0)
    """Number of alternatives at each step."""


class AttentionRequest(Request):
    """A request for the attention maps of an output."""

    input: str | dict[str, str]
    tokens: list[int]
    """Ids of the tokens of the output."""
    which: Literal["cross", "encoder", "decoder"] = "cross"


class FileRequest(Request):
    """A request for the outputs of the rows of a file."""

    file: str | None = None
    """A path on this machine or the id of an upload.

    None: the run's own test rows, or else its dev rows.
    """
    beam: int | None = Field(None, ge=1)
    limit: int = Field(2000, ge=1)
    """Most rows that are listed; all are evaluated."""


class CompareRequest(Request):
    """A request for a comparison of two runs."""

    a: str
    """Id of the run."""
    b: str
    """Id of the run."""
    file: str | None = None
    """As in FileRequest. None: the test rows of ``a``."""
    beam: int | None = Field(None, ge=1)
    limit: int = Field(500, ge=1)
    """Most rows that are listed."""


class MapRequest(Request):
    """A request for the map of a file's sources."""

    file: str | None = None
    """As in FileRequest. None: the training rows, if their file still exists."""
    n: int = Field(500, ge=2)
    """Number of points."""
    layout: Layout = "pca"


class NeighboursRequest(Request):
    """A request for the examples of a map that are most similar to an input."""

    input: str | dict[str, str]
    file: str | None = None
    """The same as for the map."""
    n: int = Field(500, ge=2)
    """The same as for the map."""
    layout: Layout = "pca"
    """The same as for the map."""
    count: int = Field(10, ge=1)
    """Number of neighbours."""
