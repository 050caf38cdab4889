"""Two runs side by side on the same rows."""

from __future__ import annotations

from dragoman.evaluation.compare import Comparison
from dragoman.studio import records


def describe_comparison(comparison: Comparison, ids: tuple[str, str] = ("", "")) -> records.Comparison:
    """Describe a comparison of the runs with these ids."""
    return records.Comparison(**comparison.to_json() | {"a": ids[0], "b": ids[1]})
