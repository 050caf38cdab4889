"""What crosses to the browser, one class per record.

``studio/src/records.ts`` is generated from these files.

Log-probabilities are natural logarithms, entropies are in bits. Texts are not escaped: the page has
to insert them as text. Records whose name ends in ``Request`` are sent to the server; all others
are its answers, or the data of a one-file page.
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
from dragoman.studio.records.comparison import ComparedRow, ComparedScore, Comparison
from dragoman.studio.records.errors import ErrorRow, Errors, MetricName, Span
from dragoman.studio.records.examples import Example, SourceFile
from dragoman.studio.records.overview import Overview
from dragoman.studio.records.pages import Inspected, Page
from dragoman.studio.records.predictions import (
    Alternative,
    Attention,
    Axis,
    ClassProbability,
    Matrix,
    Media,
    Node,
    Output,
    Prediction,
    Reference,
    Token,
    Tree,
)
from dragoman.studio.records.representation_map import Layout, Neighbour, Neighbours, Point, RepresentationMap
from dragoman.studio.records.requests import (
    AttentionRequest,
    CompareRequest,
    FileRequest,
    MapRequest,
    NeighboursRequest,
    PredictRequest,
    Request,
    Upload,
    replace_surrogates,
)
from dragoman.studio.records.runs import (
    Calibration,
    Classes,
    ClassScore,
    Confusion,
    CoverageRisk,
    Evaluation,
    LengthScore,
    Maps,
    ReliabilityBin,
    Run,
    Score,
    Search,
    Source,
)
from dragoman.studio.records.training import Started, Stepped, Stopped, Training, Validated

__all__ = [
    "Alternative",
    "Attention",
    "AttentionRequest",
    "Audit",
    "Axis",
    "Calibration",
    "ClassProbability",
    "ClassScore",
    "Classes",
    "CompareRequest",
    "ComparedRow",
    "ComparedScore",
    "Comparison",
    "Confusion",
    "CoverageRisk",
    "ErrorRow",
    "Errors",
    "Evaluation",
    "Example",
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
    "Overview",
    "Page",
    "Place",
    "Point",
    "PredictRequest",
    "Prediction",
    "Problem",
    "Record",
    "Reference",
    "ReliabilityBin",
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
    "SourceFile",
    "Span",
    "Started",
    "Stepped",
    "Stopped",
    "Token",
    "Training",
    "Tree",
    "Upload",
    "Validated",
    "replace_surrogates",
]
