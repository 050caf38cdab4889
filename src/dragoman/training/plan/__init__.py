"""All that is decided before the first update: the data, the tokenizers, every setting, the model.

A plan is made in stages. Each stage is a frozen value that one function makes of the stage before:

    TrainingRequest (asking)  →  ReadData (reading)  →  FittedData (fitting)  →  Choice (choosing)
        →  BuiltSystem (building)  →  Plan
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dragoman.data.corpus.mapped.folder import Workspace
from dragoman.data.corpus.mapped.rows import MappedRows
from dragoman.data.reading.read import DataSource
from dragoman.data.splits import Data
from dragoman.evaluation import metrics
from dragoman.inference.system import System
from dragoman.process.allocator import release_pages
from dragoman.recipe.layers import ConfigSource, Overrides
from dragoman.tables import html_text
from dragoman.training.corpus import EncodedExamples
from dragoman.training.objective.distill import Teacher
from dragoman.training.plan.asking import ask
from dragoman.training.plan.building import build
from dragoman.training.plan.choosing import choose
from dragoman.training.plan.fitting import fit
from dragoman.training.plan.reading import read
from dragoman.training.plan_text import describe_choices, describe_size
from dragoman.training.transfer.weights import Transfer

__all__ = ["Plan", "plan"]


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """All that is decided before the first update."""

    system: System
    data: Data
    rows: EncodedExamples  # the training rows of ``data``, tokenized
    metric: metrics.MetricChoice
    reasons: tuple[str, ...]  # what was chosen and why, in sentences
    transfers: tuple[Transfer, ...]  # weights taken from other runs
    origins: Mapping[str, str]  # those runs and the teachers, and a digest of their weights
    teacher: Teacher | None = None  # whose probabilities are learnt

    def __repr__(self) -> str:
        sides = ", ".join(
            f"{len(rows):,} rows for {name}"
            for name, rows in (("train", self.data.train), ("dev", self.data.dev), ("test", self.data.test))
            if rows
        )
        return f"Plan({self.system.recipe.preset}, {describe_size(self)}, {sides})"

    def _repr_html_(self) -> str:
        return html_text(self.to_text())

    def to_text(self) -> str:
        """Return the audit of the data, and what was chosen and why."""
        return "\n".join([*describe_choices(self), f"  {describe_size(self)}"]) + "\n"


def plan(
    train: DataSource,
    dev: DataSource | None = None,
    test: DataSource | None = None,
    *,
    preset: str | None = None,
    config: ConfigSource | None = None,
    settings: Overrides = (),
    workspace: Workspace | None = None,
) -> Plan:
    """Read the data, fit the tokenizers, choose every setting and build the model.

    ``workspace``: where rows are put that are too many for memory.
    """
    request = ask(preset, config, settings)
    read_data = read(request, train, dev, test, workspace)
    fitted = fit(read_data)
    _release(read_data.data)
    choice = choose(fitted)
    built = build(choice)
    _release(choice.data)
    return Plan(
        built.system,
        choice.data,
        choice.rows,
        choice.metric,
        (*fitted.reasons, *choice.reasons, *built.reasons),
        built.transfers,
        choice.origins.digests,
        built.teacher,
    )


def _release(data: Data) -> None:
    """Give back the memory that a stage has freed, where there are so many rows that it is much."""
    if isinstance(data.train, MappedRows):
        release_pages()
