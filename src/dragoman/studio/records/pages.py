"""What stands in a one-file page."""

from __future__ import annotations

from typing import Literal

from dragoman.studio.records.audit import Audit, Settings
from dragoman.studio.records.base import Record
from dragoman.studio.records.comparing import Errors
from dragoman.studio.records.mapping import RepresentationMap
from dragoman.studio.records.predictions import Attention, Prediction, Tree
from dragoman.studio.records.runs import Run
from dragoman.studio.records.training import Training


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
