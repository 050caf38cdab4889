"""The verb ``calibrate``: how probable it is that an output is right, fitted on rows with references."""

from __future__ import annotations

import typer

from dragoman.cli.evaluate import read_corpus
from dragoman.cli.messages import Messages, Quiet, Verbose, progress_bar
from dragoman.cli.options import (
    CTC,
    BatchSize,
    Beam,
    Device,
    Engine,
    Ensemble,
    Files,
    Json,
    LanguageModel,
    LanguageModelWeight,
    Root,
    Run,
    SourceColumn,
    TargetColumn,
    Workers,
    describe_search,
    load_system,
    print_json,
)


def calibrate(
    run: Run,
    files: Files,
    beam: Beam = None,
    ctc: CTC = None,
    batch: BatchSize = 64,
    workers: Workers = None,
    source: SourceColumn = None,
    target: TargetColumn = None,
    root: Root = None,
    as_json: Json = False,
    ensemble: Ensemble = None,
    lm: LanguageModel = None,
    lm_weight: LanguageModelWeight = None,
    device: Device = "auto",
    engine: Engine = "auto",
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Fit the confidence of outputs on rows that the run was not trained on, and keep it in the folder of the run.

    Training does this with its dev rows. It has to be done again for runs that answer together (--ensemble, --lm), for
    other search settings, and for runs of earlier versions. Do not use test rows.
    """
    from dragoman.evaluation import verbs
    from dragoman.runs.confidence import confidence_file

    messages = Messages.of(quiet, verbose)
    system = load_system(run, device, ensemble, lm, lm_weight, engine)
    corpus = read_corpus(system, files, source, target, root)
    messages.detail(f"{system!r}, {system.describe_engine()}")
    messages.detail(f"search: {describe_search(system.search_config(beam=beam, ctc=ctc))}")
    with progress_bar("decoding", messages) as on_progress:
        fit = verbs.calibrate_system(
            system, corpus.examples, batch=batch, workers=workers, on_progress=on_progress, beam=beam, ctc=ctc
        )
    if as_json:
        print_json({"run": str(run), **fit.to_json()})
        return
    typer.echo(fit.to_text(), nl=False)
    messages.note(f"dragoman: written to {run / confidence_file(system.made_of)}")
