"""Train: from files to a trained, evaluated and saved system."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch

from dragoman.data.corpus.mapped.folder import Progress, Workspace, silent
from dragoman.data.reading.read import DataSource
from dragoman.data.splits import PathLike
from dragoman.data.vocabulary import word_dropout_rates
from dragoman.errors import UserError
from dragoman.evaluation.calibrate import Fit
from dragoman.evaluation.evaluate import evaluate, measure
from dragoman.evaluation.metrics import Report
from dragoman.files import FolderGone, HeldFolder, write_json, write_run_file
from dragoman.inference.steps import SearchCancelled
from dragoman.inference.system import System
from dragoman.recipe.layers import ConfigSource, Overrides
from dragoman.runs.alignment import delete_alignment
from dragoman.runs.card import CARD, CardFacts, write_card
from dragoman.runs.folder import (
    CHECKPOINT,
    NewRun,
    check_folder,
    default_folder,
    read_race_table,
    recorded_run_name,
    reserve_folder,
)
from dragoman.runs.history import EVALUATION, evaluated_update, keep_other_evaluation
from dragoman.runs.setup import Setup
from dragoman.training.alignment import write_alignment
from dragoman.training.checkpoints.checkpoint import Checkpoint
from dragoman.training.checkpoints.snapshots import kept_updates, load_final_weights
from dragoman.training.confidence import add_confidence
from dragoman.training.corpus import make_caches, training_corpus
from dragoman.training.events import Evaluated, Event, Stopped, Warned
from dragoman.training.forecast import foresee_ending
from dragoman.training.native import delete_native_model, write_native_model
from dragoman.training.parallel.processes import Processes, join_processes
from dragoman.training.parallel.start import check_same, fix_shares, pass_checkpoint, refuse_under_torchrun
from dragoman.training.plan import Plan, plan
from dragoman.training.trainer import Trainer
from dragoman.training.validation import make_validator
from dragoman.training.writer import RunWriter, find_checkpoint


def train(
    train: DataSource,
    dev: DataSource | None = None,
    test: DataSource | None = None,
    *,
    out: PathLike | None = None,
    preset: str | None = None,
    config: ConfigSource | None = None,
    settings: Overrides = (),
    fresh: bool = False,
    on_plan: Callable[[Plan, Trainer, Path], None] = lambda *_: None,
    on_event: Callable[[Event], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
    pause_at: int | None = None,
    evaluate_on: Literal["test", "dev"] = "test",
    on_progress: Progress = silent,
) -> System:
    """Train on paired files (or plain text, with a preset for it) or a table in memory; return the system.

    A table in memory is a frame of pandas or polars, a pyarrow table, a ``datasets.Dataset``, or rows
    as tuples or dicts, in a list or from a generator. Everything is saved in ``out`` (default:
    runs/NAME, of a table in memory runs/table), and the same call again resumes from there.
    ``config`` is the path of a TOML file, or a mapping. ``settings`` is a mapping, whose keys may be
    nested or dotted, or one or several strings as for ``--set``. ``on_plan`` is called before the first
    update; ``on_event`` gets what happens, last the report on the final weights (``Evaluated``).
    ``pause_at``: an update at which training stops as if it had been interrupted. ``evaluate_on``:
    the rows for that report; ``dev`` leaves test unseen, and so does a run without test rows.
    ``on_progress``: called while very many rows are prepared, with the stage, the rows done, and the
    rows in all if that is known.

    Under torchrun, all processes train together. They return the same system, but only the first
    one writes, and calls ``on_plan`` and ``on_event``.
    """
    folder = Path(out) if out is not None else default_folder(train)
    processes = join_processes()

    def make_plan() -> Plan:
        refuse_under_torchrun(train, dev, test, fresh=fresh)
        workspace = Workspace(corpus_folder(folder, processes.rank), on_progress if processes.is_first else silent)
        return plan(train, dev, test, preset=preset, config=config, settings=settings, workspace=workspace)

    planned = fix_shares(processes.together(make_plan), None if fresh else folder, processes)
    new_run = describe_run(planned)
    check_same(processes, new_run)
    with ExitStack() as reserved:
        held: HeldFolder | None = None  # by the first process, which is the one that writes

        def reserve() -> None:
            nonlocal held
            held = reserved.enter_context(reserve_folder(folder, new_run, fresh=fresh))

        processes.on_first(reserve)
        return _train(planned, folder, held, on_plan, on_event, should_stop, pause_at, evaluate_on, processes)


def preview(
    train: DataSource,
    dev: DataSource | None = None,
    test: DataSource | None = None,
    *,
    out: PathLike | None = None,
    preset: str | None = None,
    config: ConfigSource | None = None,
    settings: Overrides = (),
    fresh: bool = False,
    on_plan: Callable[[Plan, Trainer, Path], None] = lambda *_: None,
    on_progress: Progress = silent,
) -> Plan:
    """Plan what ``train`` would do with the same arguments, and write nothing.

    What ``train`` would refuse is refused here too. ``on_plan`` gets a trainer that is ready to run.
    """
    folder = Path(out) if out is not None else default_folder(train)
    workspace = Workspace(corpus_folder(folder), on_progress, writes=False)
    planned = plan(train, dev, test, preset=preset, config=config, settings=settings, workspace=workspace)
    planned = fix_shares(planned, None if fresh else folder, Processes())
    if not fresh:
        check_folder(folder, describe_run(planned))
    checkpoint = None if fresh else find_checkpoint(folder, recorded_run_name(folder) or "", planned.system.model)
    on_plan(planned, _make_trainer(planned, planned.system, None, checkpoint), folder)
    return planned


def corpus_folder(folder: Path, rank: int = 0) -> Path:
    """Return where the rows of a run are put that are too many for memory: beside its folder.

    So the folder of a run can be given to others without its data, and deleting the rows does no
    harm: the same command prepares them again. Of several processes, each has rows of its own.
    """
    whole = folder.absolute()  # a name such as "." has no name of its own
    return whole.parent / f"{whole.name}.corpus{f'-{rank}' if rank else ''}"


def describe_run(planned: Plan) -> NewRun:
    """Return what the folder of a run records before the first update."""
    system = planned.system
    return NewRun(
        Setup(system.recipe, system.modalities, system.target, system.lengths, system.columns, system.classes),
        planned.data.fingerprint(),
        planned.data.to_json(),
        planned.origins,
        [transfer.to_json() for transfer in planned.transfers],
    )


def _train(
    planned: Plan,
    folder: Path,
    held: HeldFolder | None,
    on_plan: Callable[[Plan, Trainer, Path], None],
    on_event: Callable[[Event], None],
    should_stop: Callable[[], bool],
    pause_at: int | None,
    evaluate_on: Literal["test", "dev"],
    processes: Processes,
) -> System:
    system = planned.system
    measured = system.with_caches(make_caches(system, folder))  # so that validations decode each file once

    def find() -> Checkpoint | None:
        return find_checkpoint(folder, recorded_run_name(folder) or "", system.model)

    checkpoint = pass_checkpoint(processes, find)
    trainer = _make_trainer(planned, measured, folder, checkpoint, processes, should_stop)
    if not processes.is_first or held is None:
        for _ in trainer.run(should_stop, pause_at):
            pass
        processes.on_first(lambda: None)
        processes.pass_tensors(system.model.state_dict().values())
        return system.in_folder(folder)
    on_plan(planned, trainer, folder)
    writer = RunWriter(folder, checkpoint, recorded_run_name(folder) or "", held)
    stopped: Stopped | None = None
    try:
        for event in writer.record(trainer.run(should_stop, pause_at)):
            on_event(event)
            stopped = event if isinstance(event, Stopped) else stopped
        held.check()
        finished = stopped is not None and stopped.finished

        def finish() -> None:
            if stopped is not None and stopped.diverged:
                raise _save_diverged(system, trainer, writer, stopped)
            # an interruption is to be quick: nothing is compared then
            with suppress(SearchCancelled):
                validate = trainer.validate if finished else None
                load_final_weights(system.model, writer.snapshots, trainer.progress, validate)
            system.model.eval()
            system.save(folder)
            if not finished:
                delete_native_model(folder)
                delete_alignment(folder)
                held.check()
                return
            answering, fit, note = add_confidence(measured, folder, planned.data.dev, planned.metric.headline)
            if note is not None:
                on_event(Warned(trainer.progress.update, note))
            if (note := write_native_model(answering, folder, planned.data.dev)) is not None:
                on_event(Warned(trainer.progress.update, note))
            write_alignment(measured, folder, planned.data.train, planned.data.dev)
            side = evaluate_on if planned.data.test else "dev"
            if stopped is not None and evaluated_update(folder, side) != stopped.update:
                on_event(_evaluate(planned, answering, folder, stopped, side, fit))
            held.check()

        processes.on_first(finish)
        processes.pass_tensors(system.model.state_dict().values())
        return system.in_folder(folder).with_confidence()
    except FolderGone as gone:
        place = _rescue(planned, trainer, folder)
        raise UserError(
            f"{gone}; what was in memory (update {trainer.progress.update:,}) is saved in {place}; to go on from "
            f"there, give the same command with --out {place}"
        ) from None


def _save_diverged(system: System, trainer: Trainer, writer: RunWriter, stopped: Stopped) -> UserError:
    """Save the last good model of a run that has diverged, if there is one, and return the error that says so."""
    kept = kept_updates(trainer.progress)
    what = "no weights from before that were kept, so no model was saved"
    if kept:
        load_final_weights(system.model, writer.snapshots, trainer.progress)
        system.model.eval()
        system.save(writer.folder)
        what = f"the model that is saved is from before (update {', '.join(str(update) for update in sorted(kept))})"
    return UserError(
        f"{writer.folder}: training has diverged at update {stopped.update:,}: {stopped.reason}; {what}; start again "
        "with a lower learning rate: --fresh --set training.optim.learning_rate=0.0003"
    )


def _rescue(planned: Plan, trainer: Trainer, folder: Path) -> Path:
    """Save what is in memory beside a folder that is gone, as a run that can be resumed, and return its folder."""
    number, place = 1, folder.with_name(f"{folder.name}.rescued")
    while place.exists():
        number += 1
        place = folder.with_name(f"{folder.name}.rescued-{number}")
    # the snapshots were in the folder: the average that makes the final model begins anew
    progress = replace(trainer.progress.copy(), snapshots=[], metrics_bytes=0)
    with reserve_folder(place, describe_run(planned), fresh=False):
        checkpoint = Checkpoint.capture(trainer.model, trainer.updater.optimizer, progress, trainer.updater.carried)
        checkpoint.write(place / CHECKPOINT, recorded_run_name(place) or "")
        planned.system.save(place)
    return place


def _make_trainer(
    planned: Plan,
    measured: System,
    folder: Path | None,
    checkpoint: Checkpoint | None,
    processes: Processes | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Trainer:
    """Return a trainer for the plan. ``measured``: what validations measure; ``folder``: for cached files."""
    system = planned.system
    return Trainer(
        system.model,
        training_corpus(system, planned.rows, folder),
        system.recipe.training,
        make_validator(measured, planned.data.dev, planned.metric.headline, folder, should_stop),
        torch.from_numpy(word_dropout_rates(system.target.counts)),
        checkpoint,
        foresee_ending(planned.data, system.recipe, planned.rows.target_lengths),
        processes,
        planned.teacher,
    )


def _evaluate(planned: Plan, system: System, folder: Path, stopped: Stopped, side: str, fit: Fit | None) -> Evaluated:
    """Evaluate the final weights, and write the model card and evaluation.json. ``fit``: of the confidence, on dev."""
    rows = planned.data.test if side == "test" else planned.data.dev
    chosen: dict[str, Any] = {"headline": planned.metric.headline, "names": planned.metric.metrics}
    if fit is not None and side == "dev" and fit.decoded.examples == len(rows):  # which are decoded already
        # by fits that did not see the row: the final one was fitted on these very rows
        report = replace(measure(system, fit.decoded, **chosen), confidence=fit.report)
    else:
        report = evaluate(system, rows, **chosen)
    write_run_file(folder / CARD, write_card(_card_facts(planned, system, folder, stopped, side, report)))
    keep_other_evaluation(folder, side)
    # last: where it exists, all else is complete
    write_json(folder / EVALUATION, {"side": side, "update": stopped.update, **report.to_json()})
    return Evaluated(side, report)


def _card_facts(planned: Plan, system: System, folder: Path, stopped: Stopped, side: str, report: Report) -> CardFacts:
    return CardFacts(
        folder,
        system.recipe,
        system.model.parameters_count,
        system.target.units,
        system.target.size,
        planned.data.to_json(),
        side,
        report.to_text(),
        stopped.update,
        stopped.seconds,
        stopped.reason,
        system.confidence,
        read_race_table(folder),
    )
