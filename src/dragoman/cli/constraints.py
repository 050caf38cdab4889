"""Options that constrain the outputs of ``predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Lexicon = Annotated[
    Path | None,
    typer.Option("--lexicon", help="File with one entry per line. Every output is one of them.", metavar="FILE"),
]
LexiconWords = Annotated[
    bool,
    typer.Option("--lexicon-words", help="With --lexicon: every word of an output, between spaces, is an entry."),
]
Match = Annotated[
    str | None,
    typer.Option("--match", help="Regular expression that every output matches as a whole.", metavar="REGEX"),
]
Grammar = Annotated[
    Path | None, typer.Option("--grammar", help="File with a Lark grammar that every output follows.", metavar="FILE")
]
JsonSchema = Annotated[
    Path | None,
    typer.Option("--json-schema", help="File with a JSON schema that every output follows.", metavar="FILE"),
]
GlossaryFile = Annotated[
    Path | None,
    typer.Option(
        "--glossary",
        help="File with a source phrase, a tab and a target phrase on each line. Where the first is in an input, the "
        "second is in its output. | separates variants, one of which suffices.",
        metavar="FILE",
    ),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        "--keep", help="What matches in an input is in its output, unchanged. May be repeated.", metavar="REGEX"
    ),
]
Known = Annotated[
    Path | None,
    typer.Option(
        "--known",
        help="File with a source, a tab and its answer on each line. Such inputs are answered from it.",
        metavar="FILE",
    ),
]
