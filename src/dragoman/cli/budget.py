"""``train --budget``: candidates race on dev, and the winner gets the rest of the time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from dragoman.cli.messages import Messages

if TYPE_CHECKING:
    from dragoman.training.budget.plan import BudgetPlan
    from dragoman.training.budget.run import Winner
    from dragoman.training.worker import Job


def run_budget(
    job: Job, budget: str, *, workers: int | None, fresh: bool, dry_run: bool, messages: Messages
) -> Winner | None:
    """Run the race, print its table on standard error, and return the winner; None after a dry run."""
    from dragoman.process.signals import stop_on_signal
    from dragoman.training.budget.plan import parse_budget, plan_race
    from dragoman.training.budget.run import run_race
    from dragoman.training.group_display import choose_display

    def show(plan: BudgetPlan) -> None:
        for line in plan.describe():
            messages.note(line)

    seconds = parse_budget(budget)
    if dry_run:
        show(plan_race(job, seconds, workers))
        messages.note("nothing was written or trained")
        return None
    messages.note("planning the candidates of the race, and measuring their speed")
    display = choose_display(messages.quiet)
    with stop_on_signal() as should_stop:
        try:
            winner = run_race(
                job, seconds, workers=workers, fresh=fresh, display=display, should_stop=should_stop, on_plan=show
            )
        finally:
            display.close()
    if winner is None:
        messages.note("stopped; everything is saved, and the same command resumes from here")
        raise typer.Exit(130)
    messages.note(f"\n{winner.table.to_text()}")
    return winner
