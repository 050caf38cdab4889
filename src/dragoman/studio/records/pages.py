"""The data of a one-file page."""

from __future__ import annotations

from typing import Literal

from dragoman.studio.records.audit import Audit, Settings
from dragoman.studio.records.base import Record
from dragoman.studio.records.errors import Errors
from dragoman.studio.records.predictions import Attention, Prediction, Tree
from dragoman.studio.records.representation_map import RepresentationMap
from dragoman.studio.records.runs import Run
from dragoman.studio.records.training import Training


class Inspected(Record):
    """Everything that a page shows of one input."""

    prediction: Prediction
    attention: list[Attention]
    """Of the best output."""
    tree: Tree | None


class Page(Record):
    """``window.__DATA__`` of a one-file page. A field that is None or empty has no view."""

    kind: Literal["inspect", "report"]
    title: str
    version: str
    """Of Dragoman."""
    run: Run
    inspected: list[Inspected]
    training: Training | None
    audit: Audit | None
    settings: Settings | None
    errors: Errors | None
    map: RepresentationMap | None
