"""The model card: a run in words, beside its weights."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman import __version__
from dragoman.parts import kind_of
from dragoman.recipe.schema import InitConfig, Recipe
from dragoman.runs.confidence import CONFIDENCE
from dragoman.runtime.confidence import Confidence

CARD = "README.md"
HEADING, LIMITS = "## Confidence", "## Limits"


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What a model card says of a run."""

    folder: Path
    recipe: Recipe
    parameters: int
    token_kind: str  # what a person calls the target's tokens, in the plural
    vocabulary: int  # its size
    data: Mapping[str, Any]  # the audit, as plain values
    side: str  # of the data, that the scores are on: "test" or "dev"
    scores: str  # a report, as text
    updates: int
    seconds: float  # of training
    end: str  # why training ended
    confidence: Confidence | None = None  # of its outputs
    race: str = ""  # the table of the race that chose the model


def write_card(facts: CardFacts) -> str:
    """Return the model card as Markdown."""
    import torch

    recipe, data = facts.recipe, facts.data
    rows = data["rows"]
    what, target = ("language", "") if recipe.is_language_model else ("sequence-to-sequence", "target ")
    dropped = {name: file["rows"] - file["used"] for name, file in data["files"].items()}
    lines = [
        f"# {facts.folder.name}",
        "",
        f"A {what} model made with Dragoman {__version__}. Use it with "
        f'`dragoman predict {facts.folder}` or `dragoman.load("{facts.folder}")`.',
        "",
        "## Model",
        "",
        f"- preset: {recipe.preset}" + (f" ({recipe.reference})" if recipe.reference else ""),
        *(f"- {name}: {kind_of(source.encoder)} encoder" for name, source in recipe.sources.items()),
        f"- decoder: {kind_of(recipe.decoder)}",
        f"- parameters: {facts.parameters:,}",
        f"- {target}tokens: {facts.token_kind}, {facts.vocabulary:,} of them",
        "",
        "## Data",
        "",
        f"- {rows['train']:,} training rows, {_count(data, 'dev')}, {_count(data, 'test')}",
        *(f"- {name}: {count:,} rows could not be used (see audit.json)" for name, count in dropped.items() if count),
        *([f"- {data['held_out']}"] if data["held_out"] else []),
        "",
        "## Training",
        "",
        *([f"- started from other runs ({runs}); init.json says with what"] if (runs := _origins(recipe.init)) else []),
        *([f"- frozen: {', '.join(recipe.training.freeze)}"] if recipe.training.freeze else []),
        f"- {facts.updates:,} updates in {facts.seconds / 60:.1f} minutes; ended because: {facts.end}",
        f"- seed {recipe.training.seed}; torch {torch.__version__}; Python {platform.python_version()}",
        "",
        *(["## Race", "", "```", facts.race.rstrip("\n"), "```", ""] if facts.race else []),
        f"## {scores_heading(facts.side)}",
        "",
        "```",
        facts.scores.rstrip("\n"),
        "```",
        "",
        *_confidence_lines(facts.confidence),
        LIMITS,
        "",
        "The scores hold for text like the training data. The model has not been tested for anything else.",
        "",
    ]
    return "\n".join(lines)


def with_confidence(card: str, confidence: Confidence) -> str:
    """Return a model card that explains this confidence, in place of the one it explained before."""
    before, limits, after = card.partition(LIMITS)
    if not limits:
        return card  # somebody has written another one
    return before.partition(HEADING)[0] + "\n".join([*_confidence_lines(confidence), limits + after])


def _confidence_lines(confidence: Confidence | None) -> list[str]:
    """Explain the confidence of outputs."""
    if confidence is None:
        return []
    fitted = confidence.fitted
    rows, right = int(fitted.get("rows", 0)), int(fitted.get("right", 0))
    return [
        HEADING,
        "",
        f"- The confidence of an output is the probability that it {confidence.describe()}.",
        f"- It was fitted on {rows:,} dev rows, of which {right:,} were right, and holds for the search settings of "
        "the run and for inputs like these.",
        f"- It is a logistic regression ({fitted.get('chosen', 'all features')}) on the log-probabilities of the "
        f"output's tokens. Its numbers are in {CONFIDENCE}.",
        f"- Probabilities of tokens are shown without label smoothing (a share of {confidence.smoothing:g}).",
        "",
    ]


def _count(data: Mapping[str, Any], side: str) -> str:
    """Return the number of rows of a side; rows with the same source are measured together."""
    rows, sources = data["rows"][side], data["distinct_sources"][side]
    return f"{rows:,} {side} rows" + (f" ({sources:,} distinct sources)" if sources != rows else "")


def scores_heading(side: str) -> str:
    """Return the title of the scores on a side of the data."""
    return f"Scores on {side}" + (" (used for stopping, so they flatter a little)" if side == "dev" else "")


def _origins(init: InitConfig) -> str:
    """Return the runs whose weights a run started from, as one line."""
    runs = {"decoder": init.decoder, "encoder": init.encoder, **init.sources}
    return ", ".join(f"{part}: {run}" for part, run in runs.items() if run)
