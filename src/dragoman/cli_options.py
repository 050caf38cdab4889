"""Arguments and options that several verbs of the command line have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Run = Annotated[Path, typer.Argument(help="folder of a trained run", show_default=False)]
Files = Annotated[
    list[str],
    typer.Argument(
        help="a TSV or JSONL file (also .gz, or - for standard input), or two parallel text files; for a language "
        "model one text file",
        show_default=False,
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="change a setting, e.g. --set decoder.width=512", metavar="KEY=VALUE"),
]
SourceColumn = Annotated[
    list[str] | None,
    typer.Option("--source", help="source column: a name, or a number from 1; given repeatedly, several sources"),
]
TargetColumn = Annotated[str | None, typer.Option("--target", help="target column: a name, or a number from 1")]
Root = Annotated[
    str | None,
    typer.Option("--root", help="folder that paths in the data start from [default: that of the file they stand in]"),
]
Json = Annotated[bool, typer.Option("--json", help="machine-readable output")]
Beam = Annotated[int | None, typer.Option(min=1, help="beam width; 1 = greedy [default: the run's]")]
CTC = Annotated[
    float | None,
    typer.Option("--ctc", min=0, help="share of CTC in the ranking, below 1, of a run trained with training.ctc"),
]
BatchSize = Annotated[int, typer.Option("--batch", min=1, help="inputs decoded together; changes speed, never output")]
Ensemble = Annotated[
    list[Path] | None,
    typer.Option(
        "--ensemble", help="another run to average probabilities with; may be given repeatedly", metavar="RUN"
    ),
]
LanguageModel = Annotated[
    Path | None, typer.Option("--lm", help="run of a language model that has a say in the search", metavar="RUN")
]
LanguageModelWeight = Annotated[
    float | None, typer.Option("--lm-weight", help="how much: log p + WEIGHT * log p_lm; 0.3 if not said")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, …")]
