"""The report of several seeds: means with t-intervals over seeds, beside each seed's own scores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dragoman.errors import UserError
from dragoman.evaluation.metrics.report import Report
from dragoman.evaluation.metrics.spread import Spread, spread
from dragoman.tables import html_table, make_frame


@dataclass(frozen=True, slots=True, repr=False)
class SeedsReport:
    """What evaluations of the same model, trained with several seeds, measured."""

    headline: str
    reports: dict[str, Report]  # by run
    spreads: dict[str, Spread]  # by metric, the headline first; metrics that all reports have

    @property
    def value(self) -> float:
        """The mean headline score."""
        return self.spreads[self.headline].mean

    def __repr__(self) -> str:
        each = self.spreads[self.headline]
        label = next(iter(self.reports.values())).scores[self.headline].label
        return f"SeedsReport({label} {each.mean:.2f} {interval(each.low, each.high)}, {len(self.reports)} seeds)"

    def _repr_html_(self) -> str:
        return html_table(self._rows(), f"means over {len(self.reports)} seeds; 95 % t-intervals over seeds")

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with one row per metric."""
        return make_frame(self._rows())

    def _rows(self) -> list[dict[str, Any]]:
        first = next(iter(self.reports.values()))
        return [
            {"metric": first.scores[name].label, "mean": each.mean, "low": each.low, "high": each.high}
            | {run: report.scores[name].value for run, report in self.reports.items()}
            for name, each in self.spreads.items()
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain values, ready for ``json.dumps``."""
        return {
            "headline": self.headline,
            "seeds": {name: asdict(each) for name, each in self.spreads.items()},
            "runs": {name: report.to_json() for name, report in self.reports.items()},
        }

    def to_text(self) -> str:
        """Return the means as a table for people, and the headline score of each seed below it."""
        first = next(iter(self.reports.values()))
        count = len(self.reports)
        lines = [f"{first.rows:,} rows; means over {count} seeds with 95 % t-intervals over seeds in brackets", ""]
        width = max(len(first.scores[name].label) for name in self.spreads)
        for name, each in self.spreads.items():
            score = first.scores[name]
            unit = f" {score.unit}" if score.unit else "  "
            lines.append(f"  {score.label:<{width}}  {each.mean:8.2f}{unit}  {interval(each.low, each.high)}")
        headline = first.scores[self.headline]
        lines += ["", f"  {headline.label} of each seed, with 95 % intervals over rows"]
        width = max(map(len, self.reports))
        for run, report in self.reports.items():
            own = report.scores[self.headline]
            lines.append(f"  {run:<{width}}  {own.value:8.2f}  {interval(own.low, own.high)}")
        lines += [
            "",
            "  The interval over seeds says how far the mean may move with other seeds; an interval over rows,",
            "  how far the score of one trained model may move with other rows.",
        ]
        return "\n".join(lines) + "\n"


def join_seeds(reports: Mapping[str, Report]) -> SeedsReport:
    """Return the means over the reports of several seeds on the same rows, by run."""
    if not reports:
        raise UserError("there is nothing to average: no report was given")
    first = next(iter(reports.values()))
    names = [name for name in first.scores if all(name in report.scores for report in reports.values())]
    if first.headline not in names:
        raise UserError(f"the runs were measured by different metrics: not all of them have {first.headline!r}")
    spreads = {name: spread([report.scores[name].value for report in reports.values()]) for name in names}
    return SeedsReport(first.headline, dict(reports), {first.headline: spreads[first.headline], **spreads})


def interval(low: float | None, high: float | None) -> str:
    """Return an interval in brackets; a dash where there is none."""
    return "–" if low is None or high is None else f"[{low:.2f}, {high:.2f}]"
