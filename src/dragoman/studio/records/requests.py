"""What goes to the server."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from dragoman.studio.records.base import Record
from dragoman.studio.records.mapping import Layout


class Upload(Record):
    id: str  # give it as an input, or as a file
    name: str
    kind: str  # "image", "speech", "features", or "table"
    size: int  # bytes
    url: str


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
    forbidden: list[str] = Field(default=[])  # words never to be written
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
