"""What crosses to the browser: one model a record. ``studio/src/records.ts`` is made from these files.

Numbers are plain, log-probabilities natural, entropies in bits. Text is carried as it is and must be shown as text.
What ends in ``Request`` goes to the server, all else comes from it or stands in a one-file page.
"""

from __future__ import annotations

from dragoman.studio.records.audit import (
    Audit,
    FileAudit,
    Finding,
    Lengths,
    Place,
    Setting,
    Settings,
    SharedRows,
    SideStatistics,
)
from dragoman.studio.records.base import Problem, Record
from dragoman.studio.records.comparing import ComparedRow, ComparedScore, Comparison, ErrorRow, Errors, MetricName, Span
from dragoman.studio.records.mapping import Layout, Neighbour, Neighbours, Point, RepresentationMap
from dragoman.studio.records.pages import Inspected, Page
from dragoman.studio.records.predictions import (
    Alternative,
    Attention,
    Axis,
    Matrix,
    Media,
    Node,
    Output,
    Prediction,
    Reference,
    Token,
    Tree,
)
from dragoman.studio.records.requests import (
    AttentionRequest,
    CompareRequest,
    FileRequest,
    MapRequest,
    NeighboursRequest,
    PredictRequest,
    Request,
    Upload,
    whole,
)
from dragoman.studio.records.runs import Confusion, Evaluation, LengthScore, Maps, Run, Score, Search, Source
from dragoman.studio.records.training import Started, Stepped, Stopped, Training, Validated

__all__ = [
    "Alternative",
    "Attention",
    "AttentionRequest",
    "Audit",
    "Axis",
    "CompareRequest",
    "ComparedRow",
    "ComparedScore",
    "Comparison",
    "Confusion",
    "ErrorRow",
    "Errors",
    "Evaluation",
    "FileAudit",
    "FileRequest",
    "Finding",
    "Inspected",
    "Layout",
    "LengthScore",
    "Lengths",
    "MapRequest",
    "Maps",
    "Matrix",
    "Media",
    "MetricName",
    "Neighbour",
    "Neighbours",
    "NeighboursRequest",
    "Node",
    "Output",
    "Page",
    "Place",
    "Point",
    "PredictRequest",
    "Prediction",
    "Problem",
    "Record",
    "Reference",
    "RepresentationMap",
    "Request",
    "Run",
    "Score",
    "Search",
    "Setting",
    "Settings",
    "SharedRows",
    "SideStatistics",
    "Source",
    "Span",
    "Started",
    "Stepped",
    "Stopped",
    "Token",
    "Training",
    "Tree",
    "Upload",
    "Validated",
    "whole",
]
