"""The model card: what a run is, in words, beside its weights."""

from __future__ import annotations

import platform
from typing import Any

from dragoman import __version__
from dragoman.metrics import Report
from dragoman.parts import kind_of
from dragoman.system import System
from dragoman.training.events import Stopped


def write(system: System, data: dict[str, Any], side: str, report: Report, stopped: Stopped) -> str:
    import torch

    recipe, rows = system.recipe, data["rows"]
    dropped = {name: file["rows"] - file["used"] for name, file in data["files"].items()}
    lines = [
        f"# {system.folder.name if system.folder else 'run'}",
        "",
        f"A sequence-to-sequence model made with Dragoman {__version__}. Use it with "
        f'`dragoman predict {system.folder}` or `dragoman.load("{system.folder}")`.',
        "",
        "## Model",
        "",
        f"- preset: {recipe.preset}" + (f" ({recipe.reference})" if recipe.reference else ""),
        *(f"- {name}: {kind_of(source.encoder)} encoder" for name, source in recipe.sources.items()),
        f"- decoder: {kind_of(recipe.decoder)}",
        f"- parameters: {system.model.parameters_count:,}",
        f"- target tokens: {system.target.kind}, {system.target.size:,} of them",
        "",
        "## Data",
        "",
        f"- {rows['train']:,} training rows, {rows['dev']:,} dev rows, {rows['test']:,} test rows",
        *(f"- {name}: {count:,} rows could not be used (see audit.json)" for name, count in dropped.items() if count),
        *([f"- {data['held_out']}"] if data["held_out"] else []),
        "",
        "## Training",
        "",
        *(f"- started from other runs ({runs}); init.json says with what" for runs in _origins(system)),
        *([f"- frozen: {', '.join(recipe.training.freeze)}"] if recipe.training.freeze else []),
        f"- {stopped.update:,} updates in {stopped.seconds / 60:.1f} minutes; ended because: {stopped.reason}",
        f"- seed {recipe.training.seed}; torch {torch.__version__}; Python {platform.python_version()}",
        "",
        f"## Scores on {side}" + (" (used for stopping, so they flatter a little)" if side == "dev" else ""),
        "",
        "```",
        report.to_text().rstrip("\n"),
        "```",
        "",
        "## Limits",
        "",
        "The scores hold for text like the training data. The model has not been tested for anything else.",
        "",
    ]
    return "\n".join(lines)


def _origins(system: System) -> list[str]:
    """The runs whose weights it started from, as a list of one line or none."""
    init = system.recipe.init
    found = {"decoder": init.decoder, "encoder": init.encoder, **init.sources}
    line = ", ".join(f"{part}: {run}" for part, run in found.items() if run)
    return [line] if line else []
