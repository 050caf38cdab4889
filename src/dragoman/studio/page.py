"""The contents of the two one-file pages: the views of some inputs, and the report of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dragoman import __version__
from dragoman.data.examples import Example
from dragoman.errors import UserError
from dragoman.evaluation.run_data import read_test_examples
from dragoman.inference.predictions import Raw
from dragoman.inference.system import System
from dragoman.studio import records
from dragoman.studio.bundle import write_html
from dragoman.studio.inspection import inspect
from dragoman.studio.records import Inspected, Page, PredictRequest
from dragoman.studio.views.attention import Which, count_maps, describe_attention
from dragoman.studio.views.errors import describe_errors
from dragoman.studio.views.media import link_thumbnail, make_data_url
from dragoman.studio.views.prediction import describe_prediction
from dragoman.studio.views.runs import describe_audit, describe_run, describe_settings, describe_training
from dragoman.studio.views.tree import describe_tree

REPORT_INPUTS = 6  # whose alignments a report shows
CURVE_POINTS = 400  # most points of a curve in a report
MAX_TITLE = 60  # characters of an input in the title
MAX_OUTPUTS = 5  # of an input in a page of inspected inputs


def inspect_page(system: System, folder: Path, inputs: Sequence[Raw], beam: int | None = None) -> str:
    """Return a page with all views of some inputs."""
    run = describe_run(folder, folder.resolve().name, system.model.parameters_count)
    # A wider beam than that of ``predict`` might find another output than ``predict`` gives.
    n_best = min(MAX_OUTPUTS, beam or system.recipe.search.beam)
    inspected = []
    for source in inputs:
        text = source if isinstance(source, str) else dict(source)
        request = PredictRequest(input=text, beam=beam, n_best=n_best)
        inspected.append(describe_input(system, source, request, run.id))
    page = Page(
        kind="inspect",
        title=f"{run.name}: {_shorten(_hide_folders(system, inputs[0]))}"
        + (f" and {len(inputs) - 1} more" if len(inputs) > 1 else ""),
        version=__version__,
        run=run,
        inspected=inspected,
        training=None,
        audit=None,
        settings=describe_settings(folder, run.id),
        errors=None,
        map=None,
    )
    return write_html(page)


def report_page(
    folder: Path, system: System, rows: int = 500, test_data: tuple[Sequence[Example], str] | None = None
) -> str:
    """Return a page with a run's curves, audit, scores and errors, and some alignments.

    The errors are those in the first ``rows`` of ``test_data``, which are the test rows and their
    name. Without it they are read again from their files; if these no longer exist, the page has
    no errors and no alignments.
    """
    run = describe_run(folder, folder.resolve().name, system.model.parameters_count)
    examples, side = test_data or _try_reading_test_data(system, folder)
    if system.is_language_model:
        examples = []
    listed = examples[:rows]
    label = side if len(listed) == len(examples) else f"the first {len(listed):,} of {len(examples):,} {side} rows"
    inspected = []
    for example in listed[:REPORT_INPUTS]:
        source = dict(example.sources)
        request = PredictRequest(input=source, reference=example.target)
        inspected.append(describe_input(system, source, request, run.id))
    page = Page(
        kind="report",
        title=run.name,
        version=__version__,
        run=run,
        inspected=inspected,
        training=_thin_out(describe_training(folder, run.id)),
        audit=describe_audit(folder, run.id) if (folder / "audit.json").exists() else None,
        settings=describe_settings(folder, run.id),
        errors=describe_errors(system, listed, label, run.id, link=link_thumbnail) if listed else None,
        map=None,
    )
    return write_html(page)


def describe_input(system: System, source: Raw, request: PredictRequest, run: str) -> Inspected:
    """Describe everything that a page shows of one input."""
    inspection = inspect(system, source, request)
    prediction = describe_prediction(inspection, request, run, make_data_url)
    tokens = inspection.result.best.tokens
    kinds: tuple[Which, ...] = ("cross", "encoder", "decoder")
    return Inspected(
        prediction=prediction.model_copy(update={"input": _hide_folders(system, prediction.input)}),
        attention=[
            describe_attention(inspection.session, inspection.prepared, tokens, which, max_fine_cells=0)
            for which in kinds
            if count_maps(system, which).layers
        ],
        tree=describe_tree(inspection, request, run),
    )


def _try_reading_test_data(system: System, folder: Path) -> tuple[Sequence[Example], str]:
    try:
        return read_test_examples(system, folder)
    except UserError:
        return [], ""


def _thin_out(training: records.Training) -> records.Training:
    """Keep every n-th point of the curves, counted from the last."""
    every = -(-len(training.stepped) // CURVE_POINTS) or 1
    return training.model_copy(update={"stepped": training.stepped[::-1][::every][::-1]})


def _hide_folders(system: System, source: Raw) -> dict[str, str]:
    """Return an input by source. Of a file it is the name, without its folder on this machine."""
    texts = {"source": source} if isinstance(source, str) else dict(source)
    files = {name for name, modality in system.modalities.items() if modality.is_file}
    is_unnamed = files and set(texts) == {"source"}  # a single source may be given without its name
    return {name: Path(text).name if name in files or is_unnamed else text for name, text in texts.items()}


def _shorten(texts: dict[str, str]) -> str:
    text = records.replace_surrogates(" / ".join(texts.values()))
    return text if len(text) <= MAX_TITLE else f"{text[: MAX_TITLE - 1]}…"
