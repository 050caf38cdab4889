"""Two runs side by side on the same rows."""

from __future__ import annotations

from dragoman.evaluation.compare import Comparison
from dragoman.evaluation.metrics.bootstrap import SMALLEST_P
from dragoman.inference.system import System
from dragoman.studio import records
from dragoman.studio.views.media import Link, describe_source, link_nothing


def describe_comparison(
    comparison: Comparison, system: System, ids: tuple[str, str] = ("", ""), link: Link = link_nothing
) -> records.Comparison:
    """Describe a comparison of the runs with these ids.

    ``system`` is one of the two, which read the same sources; ``link`` says how the page finds one that is a file.
    """
    plain = comparison.to_json() | {"a": ids[0], "b": ids[1]}
    del plain["note"]  # is about the table of the command line
    scores = [score | {"smallest": score["p_value"] <= SMALLEST_P} for score in plain["scores"]]
    rows = []
    for row in plain["rows"]:
        texts, files = describe_source(system, row["source"], link)
        rows.append(row | {"source": texts, "files": files})
    return records.Comparison(**plain | {"scores": scores, "rows": rows})
