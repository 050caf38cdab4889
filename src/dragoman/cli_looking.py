"""The verbs that look inside: inspect, compare, report, studio. Light, as ``cli`` is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.cli_options import Beam, Device, Json, Root, Run, SourceColumn, TargetColumn
from dragoman.cli_support import print_json, read_like

if TYPE_CHECKING:
    from dragoman.data.examples import Example
    from dragoman.studio.records import Comparison
    from dragoman.system import System

DIFFERENT = 10  # rows that `compare` shows
PAGES = (".html", ".htm")


def inspect(
    run: Run,
    inputs: Annotated[
        list[str],
        typer.Argument(
            help="an input: a text, or the path of a picture or recording; for several sources a JSON object; a page "
            "and a sheet of pictures or recordings take several",
            metavar="INPUT…",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="where the drawing goes; .html is a page with all views in one file",
            show_default="alignment.svg; of a picture or recording .png",
        ),
    ] = None,
    beam: Beam = None,
    device: Device = "auto",
) -> None:
    """Show where the model looked for each token of the output that it returns, and as a page what else it weighed."""
    from dragoman.errors import UserError
    from dragoman.files import refuse_folder, write_atomically
    from dragoman.workflow import load

    if out is not None:
        refuse_folder(out)
    system = load(run, device)
    sources = [_source(one, len(system.modalities)) for one in inputs]
    if not system.is_language_model and not all(one.strip() if isinstance(one, str) else one for one in sources):
        raise UserError("an empty input has an empty output and nothing to draw; give some text")
    if out is not None and out.suffix.lower() in PAGES:
        from dragoman.studio.page import inspect_page

        write_atomically(out, inspect_page(system, run, sources, beam))
        typer.echo(f"page: {out}", err=True)
        return
    from dragoman.drawing import draw

    predictions = system.predict(sources, beam=beam, maps=not system.model.decoder.maps)
    if unread := [one.error for one in predictions if one.error]:
        raise UserError(unread[0])
    for prediction in predictions:
        typer.echo(prediction.text)
    place, drawn = draw(system, predictions, out)
    write_atomically(place, drawn)
    typer.echo(f"picture: {place}", err=True)


def compare(
    first: Annotated[Path, typer.Argument(help="folder of a run", metavar="A", show_default=False)],
    second: Annotated[Path, typer.Argument(help="folder of another", metavar="B", show_default=False)],
    files: Annotated[list[str], typer.Argument(help="a file with references, read as A reads it", show_default=False)],
    beam: Beam = None,
    source: SourceColumn = None,
    target: TargetColumn = None,
    root: Root = None,
    as_json: Json = False,
    device: Device = "auto",
) -> None:
    """Two runs on the same rows: is one better, how sure is that, and where do they differ?"""
    from dragoman.studio.tables import compare as compared
    from dragoman.workflow import load

    systems = load(first, device), load(second, device)
    corpus = read_like(systems[0], files, source, target, root)
    names = _names(first, second)
    found = compared(*systems, corpus.examples, " ".join(files), names, names, beam)
    if as_json:
        print_json(json.loads(found.model_dump_json()))
    else:
        typer.echo(comparison_text(found), nl=False)


def report(
    run: Run,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="where the page goes", show_default="RUN/report.html")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="test rows whose outputs are listed")] = 500,
    device: Device = "auto",
) -> None:
    """A run in one page: its curves, audit, scores, errors and some alignments."""
    from dragoman.files import write_atomically
    from dragoman.studio.page import report_page, static_folder
    from dragoman.workflow import load

    static_folder()
    place = out or run / "report.html"
    write_atomically(place, report_page(run, load(run, device), rows))
    typer.echo(f"report: {place}", err=True)


def studio(
    runs: Annotated[list[Path], typer.Argument(help="folders of runs", metavar="RUN…", show_default=False)],
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="[default: 8400, or a free one]")] = None,
    browser: Annotated[bool, typer.Option(help="open the page in the browser")] = True,
    device: Device = "auto",
) -> None:
    """Look inside runs in the browser, on this machine only."""
    from dragoman.studio.server import serve

    serve(runs, port, browser, device, lambda sentence: typer.echo(sentence, err=True))


def comparison_text(found: Comparison) -> str:
    a, b = found.a_name, found.b_name
    lines = [f"{found.count:,} rows of {found.file}; 95 % intervals in brackets", "", f"  A  {a}", f"  B  {b}", ""]
    wide = max(len(score.metric.label) for score in found.scores)
    lines.append(f"  {'':<{wide}}  {'A':^26}  {'B':^26}  {'B - A':^26}  {'p':>6}")
    for score in found.scores:
        cells = [
            f"{value:8.2f} [{low:.2f}, {high:.2f}]"
            for value, low, high in (
                (score.a.value, score.a.low, score.a.high),
                (score.b.value, score.b.low, score.b.high),
                (score.difference, score.low, score.high),
            )
        ]
        lines.append(
            f"  {score.metric.label:<{wide}}  " + "  ".join(f"{c:<26}" for c in cells) + f"  {score.p_value:6.3f}"
        )
    lines += ["", f"  {found.scores[0].verdict}"]
    lines += [
        f"  by row ({found.row_metric.label}): B better in {found.wins:,}, A better in {found.losses:,}, "
        f"alike in {found.ties:,}",
        "",
    ]
    if found.rows:
        lines.append("  where they differ most")
    for row in found.rows[:DIFFERENT]:
        given = " | ".join(row.source.values())
        lines += [
            "",
            f"  line {row.line}  {_short(given)}",
            f"    reference  {_short(row.references[0])}",
            f"    A {row.a_value:8.2f}  {_short(row.a)}",
            f"    B {row.b_value:8.2f}  {_short(row.b)}",
        ]
    return "\n".join(lines).rstrip() + "\n"


def write_report(folder: Path, system: System, held_out: Mapping[str, Sequence[Example]]) -> Path | None:
    """What ``train`` does at its end, where the page is built: of a few test rows, so that it takes little time."""
    from dragoman.errors import UserError

    try:
        from dragoman.studio.page import is_built, report_page
    except ImportError:
        return None
    if not is_built():
        return None
    from dragoman.files import write_atomically

    place = folder / "report.html"
    try:
        side = "test" if held_out["test"] else "dev"
        write_atomically(place, report_page(folder, system, 100, (held_out[side], side)))
    except (UserError, OSError) as error:  # the run itself is saved, and that is what was asked for
        typer.echo(f"dragoman: no report was written: {error}", err=True)
        return None
    return place


def _short(text: str, most: int = 100) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _source(given: str, sources: int) -> str | dict[str, str]:
    from dragoman.errors import UserError

    if sources < 2:
        return given
    try:
        found = json.loads(given)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
        raise UserError(f"{given}: this run reads several sources; give a JSON object with a text for each")
    return found


def _names(first: Path, second: Path) -> tuple[str, str]:
    """The folders' own names; with those they lie in where these are alike."""
    names = first.resolve().name, second.resolve().name
    return names if names[0] != names[1] else (str(first), str(second))
