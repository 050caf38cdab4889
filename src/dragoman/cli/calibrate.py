"""The verb ``calibrate``: how probable it is that an output is right, fitted on rows with references."""

from __future__ import annotations

import typer

from dragoman.cli.measuring import Measuring, takes_measuring
from dragoman.cli.messages import progress_bar
from dragoman.cli.options import describe_search, load_system, print_json


@takes_measuring
def calibrate(options: Measuring) -> None:
    """Fit the confidence of outputs on rows that the run was not trained on, and keep it in the folder of the run.

    Training does this with its dev rows. It has to be done again for runs that answer together (--ensemble, --lm), for
    other search settings, and for runs of earlier versions. Do not use test rows.
    """
    from dragoman.evaluation import verbs
    from dragoman.runs.confidence import confidence_file

    messages, run = options.messages, options.run
    system = load_system(run, options.device, options.ensemble, options.lm, options.lm_weight, options.engine)
    corpus = options.read(system)
    messages.detail(f"{system!r}, {system.describe_engine()}")
    messages.detail(f"search: {describe_search(system.search_config(beam=options.beam, ctc=options.ctc))}")
    with progress_bar("decoding", messages) as on_progress:
        fit = verbs.calibrate_system(system, corpus.examples, on_progress=on_progress, **options.decoding())
    if options.as_json:
        print_json({"run": str(run), **fit.to_json()})
        return
    typer.echo(fit.to_text(), nl=False)
    messages.note(f"dragoman: written to {run / confidence_file(system.made_of)}")
