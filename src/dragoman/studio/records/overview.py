"""What a studio shows as a whole."""

from __future__ import annotations

from dragoman.studio.records.base import Record
from dragoman.studio.records.representation_map import Layout
from dragoman.studio.records.runs import Run


class Overview(Record):
    """The runs of a studio, and what it can do."""

    runs: list[Run]
    watched: list[str]
    """Names of the folders in which new runs are looked for."""
    layouts: list[Layout]
    """Layouts of the map whose libraries are installed."""
