"""The verbs ``inspect`` and ``report``: drawings and pages about a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.cli.options import Beam, Device, Run

if TYPE_CHECKING:
    from dragoman.data.examples import Example
    from dragoman.inference.system import System

PAGES = (".html", ".htm")
REPORT = "report.html"
ROWS_AFTER_TRAINING = 100  # test rows in the report that ``train`` writes: few, so that it takes little time


def inspect(
    run: Run,
    inputs: Annotated[
        list[str],
        typer.Argument(
            help="A text, or the path of a picture or recording; for several sources, a JSON object. A page takes "
            "several inputs, and so does a drawing of pictures or recordings.",
            metavar="INPUT",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--out",
            help="File to write. If it ends in .html, it is a page with all views.",
            show_default="alignment.svg; for a picture or recording, alignment.png",
        ),
    ] = None,
    beam: Beam = None,
    device: Device = "auto",
) -> None:
    """Draw where the model looked for each output token; as a page, also what else it considered."""
    from dragoman.drawing.attention import draw, refuse_suffix
    from dragoman.errors import UserError
    from dragoman.files import refuse_folder, write_atomically
    from dragoman.inference.load import load
    from dragoman.runs.setup import Setup

    is_page = out is not None and out.suffix.lower() in PAGES
    if out is not None:
        refuse_folder(out)
        if not is_page:
            refuse_suffix(out, Setup.read(run, reads_network=False).modalities)
    system = load(run, device, engine="torch")
    if out is not None and not is_page:
        refuse_suffix(out, system.modalities, system.engine.has_attention)
    sources = [_parse_input(text, len(system.modalities)) for text in inputs]
    is_empty = [not (source.strip() if isinstance(source, str) else source) for source in sources]
    if not system.is_language_model and any(is_empty):
        raise UserError("an empty input has an empty output and nothing to draw; give some text")
    if out is not None and is_page:
        from dragoman.studio.page import inspect_page

        write_atomically(out, inspect_page(system, run, sources, beam))
        typer.echo(f"page: {out}", err=True)
        return
    predictions = system.predict(sources, beam=beam, maps=not system.engine.has_attention, keep_arrays=True)
    if errors := [prediction.error for prediction in predictions if prediction.error]:
        raise UserError(errors[0])
    for prediction in predictions:
        typer.echo(prediction.text)
    path, drawing = draw([system.view_attention(prediction) for prediction in predictions], out)
    write_atomically(path, drawing)
    typer.echo(f"picture: {path}", err=True)


def report(
    run: Run,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="File to write.", show_default=f"RUN/{REPORT}")
    ] = None,
    rows: Annotated[int, typer.Option(min=1, help="Number of test rows to list with their outputs.")] = 500,
    device: Device = "auto",
) -> None:
    """Write one page about a run: training curves, audit, scores, errors and some alignments.

    For a folder of seeds, the page has the means over seeds.
    """
    from dragoman.files import write_atomically
    from dragoman.runs.groups import seed_folders

    if seed_folders(run):
        from dragoman.training.seeds import write_group_report

        typer.echo(f"report: {write_group_report(run, out)}", err=True)
        return
    from dragoman.inference.load import load
    from dragoman.studio.bundle import read_page
    from dragoman.studio.page import report_page

    read_page()  # fails early where the page cannot be read
    path = out or run / REPORT
    write_atomically(path, report_page(run, load(run, device, engine="torch"), rows))
    typer.echo(f"report: {path}", err=True)


def write_report(folder: Path, system: System, held_out: Mapping[str, Sequence[Example]]) -> Path | None:
    """Write the report of a newly trained run and return its path; None if that is impossible."""
    from dragoman.errors import UserError
    from dragoman.files import write_atomically
    from dragoman.studio.page import report_page

    path = folder / REPORT
    try:
        side = "test" if held_out["test"] else "dev"
        write_atomically(path, report_page(folder, system, ROWS_AFTER_TRAINING, (held_out[side], side)))
    except (UserError, OSError) as error:  # the run itself is saved, and that is what was asked for
        typer.echo(f"dragoman: no report was written: {error}", err=True)
        return None
    return path


def _parse_input(text: str, sources: int) -> str | dict[str, str]:
    """Return the text itself or, for several sources, the texts of a JSON object by name."""
    from dragoman.errors import UserError

    if sources < 2:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict) or not all(isinstance(each, str) for each in value.values()):
        raise UserError(f"{text}: this run reads several sources; give a JSON object with a text for each")
    return value
