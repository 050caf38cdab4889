"""The base of all records."""

from __future__ import annotations

from dragoman.serving import records
from dragoman.serving.records import Record as Record


class Problem(records.Problem):
    """The body of every answer whose status is not 2xx."""
