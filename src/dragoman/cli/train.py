"""The verb ``train``: from files to a trained, evaluated and saved run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dragoman.cli.inspect import write_report
from dragoman.cli.messages import Messages, Quiet, Verbose
from dragoman.cli.options import Files, Root, SourceColumn, TargetColumn, data_settings
from dragoman.process.signals import stop_on_signal

if TYPE_CHECKING:
    from dragoman.data.examples import Example


def train(
    files: Files,
    dev: Annotated[str | None, typer.Option(help="Dev file. Without one, a share of the rows is held out.")] = None,
    test: Annotated[
        str | None,
        typer.Option(help="Test file, evaluated at the end. Without dev and test files, a share is held out."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run.", show_default="runs/NAME")] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="A published system by name, e.g. bahdanau2015; auto chooses one for the data.", show_default="auto"
        ),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="TOML file with settings.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting, e.g. decoder.width=512. May be repeated.", metavar="KEY=VALUE"),
    ] = None,
    init_encoder: Annotated[
        Path | None, typer.Option(help="Start the encoder with the weights of this run.", metavar="RUN")
    ] = None,
    init_decoder: Annotated[
        Path | None, typer.Option(help="Start the decoder with the weights of this run.", metavar="RUN")
    ] = None,
    source: SourceColumn = None,
    target: TargetColumn = None,
    root: Root = None,
    max_time: Annotated[float | None, typer.Option(min=1, help="Stop after this many seconds of training.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed for the weights, the order of rows and dropout.")] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Train so many runs side by side, with seeds from --seed on, and report means over them.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="With --seeds: the most runs that train at once.", show_default="one for each core"),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Let a few candidates race on dev and train the winner, all within this time, e.g. 20m or 1h30m.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="Device to train on: auto, cpu, cuda, …", show_default="auto")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Start again; an old run in the same folder is renamed.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and the expected time, and write nothing.")
    ] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Audit and split the data, choose a model, train, evaluate and save it.

    Ctrl-C stops and saves. The same command resumes where it stopped.
    """
    from dragoman.cli.preparing import PreparationDisplay
    from dragoman.cli.seeds import train_seeds
    from dragoman.config import merge, parse_overrides
    from dragoman.errors import UserError
    from dragoman.process.place import find_place
    from dragoman.runs.folder import default_folder
    from dragoman.training import display, plan_text, run
    from dragoman.training.events import Started, Stopped
    from dragoman.training.worker import Job

    messages = Messages.of(quiet, verbose)
    overrides = parse_overrides(settings or [])
    training = {"max_time": max_time, "seed": seed, "device": device}
    origins = {"encoder": init_encoder and str(init_encoder), "decoder": init_decoder and str(init_decoder)}
    for section, options in (("training", training), ("init", origins), ("data", data_settings(source, target, root))):
        values = {name: value for name, value in options.items() if value is not None}
        if values and isinstance(overrides.get(section, {}), dict):  # the recipe refuses a section that is no table
            overrides = merge(overrides, {section: values})
    folder = out or default_folder(files)
    if workers is not None and seeds is None and budget is None:
        raise UserError("--workers has no effect on a single run; give --seeds too")
    if seeds is not None and budget is not None:
        raise UserError("--budget trains one run, the winner of a race; leave out --seeds, or train the seeds of it")
    place = find_place()
    if budget is not None and place.count > 1:
        raise UserError(
            "--budget lets candidates race in processes of its own, so it cannot run under torchrun; run the race "
            "without torchrun, then train its winner with torchrun"
        )
    if budget is not None:
        from dragoman.cli.budget import run_budget

        job = Job(
            "", str(folder), files, dev, test, preset, None if config is None else str(config), settings=overrides
        )
        winner = run_budget(job, budget, workers=workers, fresh=fresh, dry_run=dry_run, messages=messages)
        if winner is None:
            return
        overrides, preset, config, fresh = dict(winner.settings), None, None, False
    if seeds is not None:
        job = Job(
            "", str(folder), files, dev, test, preset, None if config is None else str(config), settings=overrides
        )
        train_seeds(job, seeds, workers=workers, fresh=fresh, dry_run=dry_run, messages=messages)
        return
    if dry_run and not place.is_first:  # of the processes that torchrun has started, only the first one prints
        return
    preparation = PreparationDisplay(quiet)

    def show_plan(plan: Any, trainer: Any) -> None:
        preparation.close()
        plan_text.print_plan(plan, trainer, every_setting=verbose)

    if dry_run:
        run.preview(
            files, dev, test, out=folder, preset=preset, config=config, settings=overrides, fresh=fresh,
            on_plan=lambda plan, trainer, _: show_plan(plan, trainer),
            on_progress=preparation,
        )  # fmt: skip
        messages.note(f"  nothing was written or trained; without --dry-run, the run is saved in {folder}")
        return
    progress = display.choose_progress(quiet, verbose)
    held_out: dict[str, list[Example]] = {}  # spares the report page from reading the files again

    def on_plan(plan: Any, trainer: Any, run_folder: Path) -> None:
        held_out.update(test=plan.data.test, dev=plan.data.dev)
        preparation.close()
        progress.show_plan(plan, trainer, run_folder, every_setting=verbose)

    with stop_on_signal(waits=not place.is_first) as should_stop:  # the other processes do as the first one does

        def on_event(event: Any) -> None:
            if isinstance(event, Started | Stopped):
                # outside the training loop everything is on disk, or can be made again
                should_stop.waits = isinstance(event, Started) or not event.finished
            progress(event)

        try:
            system = run.train(
                files, dev, test, out=folder, preset=preset, config=config, settings=overrides, fresh=fresh,
                on_plan=on_plan, on_event=on_event, should_stop=should_stop, on_progress=preparation,
            )  # fmt: skip
        finally:
            preparation.close()
            progress.close()
        interrupted = should_stop()
    if interrupted:
        raise typer.Exit(130)
    if not place.is_first:
        return
    if (scores := _read_scores(folder)) is not None:
        typer.echo(f"\n{scores}\n")
        if (page := write_report(folder, system, held_out)) is not None:
            typer.echo(f"report: {page}")
    sample: dict[str, str] = next((dict(row.sources) for rows in held_out.values() for row in rows), {})
    is_file = {name: modality.is_file for name, modality in system.modalities.items()}
    typer.echo(f"saved in {folder}; try: {example_call(str(folder), is_file, sample)}")


def example_call(run: str, is_file: Mapping[str, bool], sample: Mapping[str, str]) -> str:
    """Return a command to try with a new run.

    ``is_file`` tells for each source whether its inputs are files; ``sample`` is an input of the
    run, if there is one at hand.
    """
    run = shlex.quote(run)
    if len(is_file) > 1:
        return f"dragoman predict {run} table.tsv, with the columns {', '.join(is_file)}"
    for name in (name for name, file in is_file.items() if file):
        return f"dragoman predict {run} {shlex.quote(sample[name]) if name in sample else 'FILE'}"
    return f'echo "some text" | dragoman predict {run}'


def _read_scores(folder: Path) -> str | None:
    """Return the scores of a run as text, if it was evaluated: just now or at an earlier time."""
    from dragoman.evaluation.metrics import Report
    from dragoman.files import damaged_file
    from dragoman.runs.card import scores_heading
    from dragoman.runs.history import EVALUATION, read_evaluation

    if (evaluation := read_evaluation(folder)) is None:
        return None
    try:
        heading, report = scores_heading(evaluation["side"]), Report.from_json(evaluation)
    except (KeyError, TypeError, AttributeError) as error:
        advice = "delete it, and the same command evaluates the run again"
        raise damaged_file(folder / EVALUATION, repr(error), advice) from None
    return f"{heading}\n\n{report.to_text().rstrip()}"
