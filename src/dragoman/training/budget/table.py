"""The race as a table: for the terminal, for the model card and as a page."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from dragoman.evaluation.metrics import METRICS
from dragoman.training.budget.plan import BudgetPlan
from dragoman.training.lines import format_duration
from dragoman.training.page import Table, write_page
from dragoman.training.race import RaceState


@dataclass(frozen=True, slots=True)
class RaceTable:
    """Who raced, and how each candidate scored on dev at each rung."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]  # the winner first
    notes: tuple[str, ...]

    def to_text(self) -> str:
        """Return the table for a terminal."""
        table = [self.heads, *self.rows]
        widths = [max(len(row[column]) for row in table) for column in range(len(self.heads))]
        lines = [
            "  ".join(
                [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
            )
            for row in table
        ]
        return "\n".join([self.title, "", *(f"  {line}".rstrip() for line in lines), "", *self.notes]) + "\n"

    def to_page(self, name: str) -> str:
        """Return the table as an HTML page."""
        rows = [
            ("best" if not number else "out", [escape(cell) for cell in row]) for number, row in enumerate(self.rows)
        ]
        return write_page(
            f"{name}: the race", " ".join(self.notes), [Table("Race", self.title, list(self.heads), rows)]
        )


def make_table(plan: BudgetPlan, state: RaceState | None, winner: str) -> RaceTable:
    """Return the table of a race that is decided."""
    metric = METRICS[plan.metric]
    sign = 1 if metric.better == "higher" else -1
    heads = ("candidate", *(f"update {rung.updates:,}" for rung in plan.rungs), "s/update", "outcome")
    rows = []
    for place, entrant in enumerate(_ranked(plan, state, winner)):
        scores = [state.scores_of(rung).get(entrant) if state else None for rung in range(len(plan.rungs))]
        cells = ["–" if score is None else f"{sign * score:.2f}" for score in scores]
        far = sum(score is not None for score in scores)
        outcome = "wins" if place == 0 else f"out after rung {far}" if far else "failed"
        rows.append((entrant, *cells, f"{plan.entrant(entrant).seconds:.3f}", outcome))
    notes = [f"{winner} trains on to update {plan.entrant(winner).updates:,}; test was not looked at."]
    notes += [f"left out: {name} ({why})" for name, why in plan.left_out.items()]
    title = f"Race within {format_duration(plan.budget)}: best {metric.label} on dev up to each rung"
    return RaceTable(title, heads, tuple(rows), tuple(notes))


def _ranked(plan: BudgetPlan, state: RaceState | None, winner: str) -> list[str]:
    names = [standing.name for standing in state.standings()] if state else [each.name for each in plan.entrants]
    return [winner, *(name for name in names if name != winner)]
