"""Arguments and options that several verbs share, and the functions that interpret them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dragoman.inference.system import System
    from dragoman.search.options import SearchConfig

OWN_SETTING = "the run's own"  # shown as the default of options that change a setting of the run

Run = Annotated[Path, typer.Argument(help="Folder of a trained run.", metavar="RUN", show_default=False)]
Files = Annotated[
    list[str],
    typer.Argument(
        help="A table (TSV, CSV, JSON, Parquet, Arrow or Excel; - is standard input), several with the same columns, "
        "or two parallel text files. For a language model, text files. A pattern in quotes names many files.",
        metavar="FILE",
        show_default=False,
    ),
]
SourceColumn = Annotated[
    list[str] | None,
    typer.Option("--source", help="Source column: a name, or a number from 1. Repeat it for several sources."),
]
TargetColumn = Annotated[str | None, typer.Option("--target", help="Target column: a name, or a number from 1.")]
Root = Annotated[
    str | None,
    typer.Option(
        "--root",
        help="Folder that relative paths in the data start from.",
        show_default="the folder of the data file",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Beam = Annotated[int | None, typer.Option(min=1, help="Beam width; 1 is greedy search.", show_default=OWN_SETTING)]
CTC = Annotated[
    float | None,
    typer.Option(
        "--ctc",
        min=0,
        help="Share of CTC in the ranking, below 1; for runs trained with training.ctc.",
        show_default=OWN_SETTING,
    ),
]
BatchSize = Annotated[
    int, typer.Option("--batch", min=1, help="Inputs decoded together. Changes the speed, never the output.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Processes that answer, which share the weights. Changes the speed, never the output.",
        show_default="one per core for many inputs",
    ),
]
Ensemble = Annotated[
    list[Path] | None,
    typer.Option("--ensemble", help="Another run to average the probabilities with. May be repeated.", metavar="RUN"),
]
LanguageModel = Annotated[
    Path | None, typer.Option("--lm", help="Run of a language model that helps to rank the outputs.", metavar="RUN")
]
LanguageModelWeight = Annotated[
    float | None,
    typer.Option("--lm-weight", help="Weight w of --lm: the ranking is by log p + w * log p_lm.", show_default="0.3"),
]
Device = Annotated[str, typer.Option(help="Device to compute on: auto, cpu, cuda, …")]
Engine = Annotated[
    str,
    typer.Option(
        help="What computes: torch, native (the C library), onnx or ctranslate2 (exports), or numpy (slow, plain). "
        "auto: native on a CPU if the run has a file model.dragoman, else torch."
    ),
]


def data_settings(source: list[str] | None, target: str | None, root: str | None) -> dict[str, Any]:
    """Return the settings of the data that ``--source``, ``--target`` and ``--root`` stand for."""
    from dragoman.recipe import arguments

    return arguments.data_settings(parse_columns(source), None if target is None else parse_column(target), root)


def parse_columns(names: list[str] | None) -> list[str | int] | str | int | None:
    """Return the source columns that ``--source`` names; None: it was not given."""
    columns = [parse_column(name) for name in names or []]
    return columns if len(columns) > 1 else next(iter(columns), None)


def parse_column(text: str) -> str | int:
    """Return a column's number if the text is made of digits, else its name."""
    return int(text) if text.isdecimal() else text


def load_system(
    run: Path,
    device: str,
    ensemble: list[Path] | None,
    lm: Path | None = None,
    lm_weight: float | None = None,
    engine: str = "auto",
) -> System:
    """Load a run, or an ensemble of runs, with or without a language model."""
    from dragoman.inference.load import load_combined

    return load_combined(run, device, ensemble or (), lm, lm_weight, engine)


def describe_search(config: SearchConfig) -> str:
    """Return all search settings in one line. Token ids that a run never outputs are left out."""
    shown = {name: value for name, value in config.model_dump().items() if not name.startswith(("forbidden", "only"))}
    return ", ".join(f"{name} = {value}" for name, value in shown.items())


def print_json(value: Any) -> None:
    """Print a value as indented JSON."""
    typer.echo(json.dumps(value, ensure_ascii=False, indent=2))
