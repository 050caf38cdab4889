"""``dragoman.train``: the options of the command line as arguments, with a display of the progress."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

from dragoman.data.reading.read import as_paths
from dragoman.data.splits import PathLike
from dragoman.errors import UserError
from dragoman.inference.system import System
from dragoman.process.signals import stop_on_signal
from dragoman.recipe.arguments import check_path, data_settings, run_path, with_arguments, with_known_arguments
from dragoman.recipe.layers import ConfigSource, Overrides, read_layers, read_overrides
from dragoman.runs.folder import default_folder
from dragoman.runs.weights import WEIGHTS
from dragoman.training import run, seed_runs
from dragoman.training.budget.plan import parse_budget
from dragoman.training.budget.run import run_race
from dragoman.training.display import is_shown, library_progress
from dragoman.training.events import Event
from dragoman.training.group_display import choose_display
from dragoman.training.plan import Plan
from dragoman.training.plan_text import print_plan
from dragoman.training.trainer import Trainer
from dragoman.training.worker import Job

OnPlan = Callable[[Plan, Trainer, Path], None]


class Options(TypedDict, total=False):
    """The arguments of ``train`` that do not change what it returns."""

    out: PathLike | None
    preset: str | None
    config: ConfigSource | None
    settings: Overrides
    init_encoder: PathLike | None
    init_decoder: PathLike | None
    source: str | int | Sequence[str | int] | Mapping[str, str | int] | None
    target: str | int | None
    root: PathLike | None
    max_time: float | None
    seed: int | None
    budget: str | float | None
    workers: int | None
    device: str | None
    fresh: bool
    quiet: bool
    verbose: bool
    on_plan: OnPlan | None
    on_event: Callable[[Event], None] | None
    should_stop: Callable[[], bool] | None


@overload
def train(
    files: Any, dev: Any = None, test: Any = None, *,
    seeds: None = None, dry_run: Literal[False] = False, **options: Unpack[Options],
) -> System: ...  # fmt: skip


@overload
def train(
    files: Any, dev: Any = None, test: Any = None, *,
    seeds: int, dry_run: Literal[False] = False, **options: Unpack[Options],
) -> list[System]: ...  # fmt: skip


@overload
def train(
    files: Any, dev: Any = None, test: Any = None, *,
    seeds: int | None = None, dry_run: Literal[True], **options: Unpack[Options],
) -> Plan: ...  # fmt: skip


@with_known_arguments
def train(
    files: Any,
    dev: Any = None,
    test: Any = None,
    *,
    out: PathLike | None = None,
    preset: str | None = None,
    config: ConfigSource | None = None,
    settings: Overrides = (),
    init_encoder: PathLike | None = None,
    init_decoder: PathLike | None = None,
    source: str | int | Sequence[str | int] | Mapping[str, str | int] | None = None,
    target: str | int | None = None,
    root: PathLike | None = None,
    max_time: float | None = None,
    seed: int | None = None,
    seeds: int | None = None,
    workers: int | None = None,
    budget: str | float | None = None,
    device: str | None = None,
    fresh: bool = False,
    dry_run: bool = False,
    quiet: bool = False,
    verbose: bool = False,
    on_plan: OnPlan | None = None,
    on_event: Callable[[Event], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> System | list[System] | Plan:
    """Train on paired data (or plain text, with a preset for it) and return the system.

    The arguments are the options of ``dragoman train``. Everything is saved in ``out`` (default: runs/NAME), and the
    same call again resumes from there. ``config`` is the path of a TOML file, or a mapping; ``settings`` a mapping with
    nested or dotted keys, or strings as for ``--set``.

    On a terminal and in a notebook, the plan and the progress are shown; ``quiet=True`` shows nothing, ``verbose=True``
    more. ``on_plan`` is called with the plan, the trainer and the folder before the first update, and ``on_event`` with
    every event of training (``dragoman.training.events``), last the report on the final weights (``Evaluated``).
    ``should_stop`` is asked between updates: when it returns True, training stops as Ctrl-C stops it, and the system is
    returned as far as it is trained. Ctrl-C saves everything, and then raises ``KeyboardInterrupt``.

    With ``seeds``, so many runs train side by side, ``workers`` at a time, and their systems are returned as a list.
    With ``budget``, such as ``"20m"``, a few candidates race on dev and the winner is trained, all within this time.
    With ``dry_run=True``, nothing is trained or written, and the plan is returned.

    >>> system = dragoman.train("train.tsv", dev="dev.tsv", out="runs/new", settings=["training.max_updates=2"])
    >>> system
    System(auto, ... parameters, runs/new)
    """
    out = None if out is None else check_path(out, "out", "the folder that is written")
    overrides = with_arguments(
        read_overrides(settings),
        training={"max_time": max_time, "seed": seed, "device": device},
        init={
            "encoder": run_path(init_encoder, "init_encoder"),
            "decoder": run_path(init_decoder, "init_decoder"),
        },
        data=data_settings(source, target, root),
    )
    progress = library_progress(quiet, verbose)
    if workers is not None and seeds is None and budget is None:
        raise UserError("workers has no effect on a single run; give seeds too")
    if budget is not None:
        if seeds is not None or dry_run:
            raise UserError("budget trains one run, the winner of a race; leave out seeds and dry_run")
        job = make_job(files, dev, test, out, preset, config, overrides)
        overrides = _race(job, budget, workers, fresh, quiet, verbose, should_stop)
        out, preset, config, fresh = job.out, None, None, False
    if seeds is not None:
        if on_event is not None:
            raise UserError("on_event follows a single run, and runs of several seeds train in processes of their own")
        job = make_job(files, dev, test, out, preset, config, overrides)
        return _train_seeds(job, seeds, workers, fresh, dry_run, quiet, verbose, on_plan, should_stop)
    if dry_run:
        return run.preview(
            files, dev, test, out=out, preset=preset, config=config, settings=overrides, fresh=fresh,
            on_plan=_plan_printer(quiet, verbose, on_plan),
        )  # fmt: skip

    def show_plan(plan: Plan, trainer: Trainer, folder: Path) -> None:
        progress.show_plan(plan, trainer, folder, every_setting=verbose)
        if on_plan is not None:
            on_plan(plan, trainer, folder)

    def show_event(event: Event) -> None:
        progress(event)
        if on_event is not None:
            on_event(event)

    with ExitStack() as stack:
        stack.callback(progress.close)
        interrupted = None
        if should_stop is None and threading.current_thread() is threading.main_thread():
            should_stop = interrupted = stack.enter_context(stop_on_signal(signal.SIGINT))
        system = run.train(
            files, dev, test, out=out, preset=preset, config=config, settings=overrides, fresh=fresh,
            on_plan=show_plan, on_event=show_event, should_stop=should_stop or (lambda: False),
        )  # fmt: skip
    if interrupted is not None and interrupted():
        raise KeyboardInterrupt
    return system


def make_job(
    files: Any, dev: Any, test: Any, out: PathLike | None, preset: str | None, config: ConfigSource | None,
    settings: dict[str, Any],
) -> Job:  # fmt: skip
    """Return the job of all seeds. Its values are plain, because processes get them."""
    paths = {name: None if data is None else as_paths(data) for name, data in (("dev", dev), ("test", test))}
    train_paths = as_paths(files)
    for name, data, found in (("train", files, train_paths), ("dev", dev, paths["dev"]), ("test", test, paths["test"])):
        if data is not None and not found:
            raise UserError(
                f"seeds: every run reads the data in a process of its own, so {name} has to be a file; "
                f"got {type(data).__name__}"
            )
        if name != "train" and found is not None and len(found) > 1:
            raise UserError(f"seeds: {name} has to be one file; got {len(found)}")
    assert train_paths
    if config is not None and not isinstance(config, (str, Path)):
        settings, config = dict(read_layers(preset, config, settings).person), None
    dev_file, test_file = (None if found is None else str(found[0]) for found in paths.values())
    folder = default_folder(files) if out is None else Path(out)
    config_file = None if config is None else str(config)
    return Job(
        "", str(folder), [str(path) for path in train_paths], dev_file, test_file, preset, config_file,
        settings=settings,
    )  # fmt: skip


def _train_seeds(
    job: Job, seeds: int, workers: int | None, fresh: bool, dry_run: bool, quiet: bool, verbose: bool,
    on_plan: OnPlan | None, should_stop: Callable[[], bool] | None,
) -> list[System] | Plan:  # fmt: skip
    """Train a run for each seed and return the systems in the order of the seeds, or only plan them."""
    for name, value in (("seeds", seeds), ("workers", workers)):
        if value is not None and (not isinstance(value, int) or value < 1):
            raise UserError(f"{name} is a whole number from 1 on; got {value!r}")
    plans: list[Plan] = []
    show = _plan_printer(quiet, verbose, on_plan)

    def keep_plan(plan: Plan, trainer: Trainer, folder: Path) -> None:
        show(plan, trainer, folder)
        if dry_run:  # otherwise its memory is better used by the workers
            plans.append(plan)

    runs = seed_runs.plan_seeds(job, seeds, workers=workers, fresh=fresh, on_plan=keep_plan)
    if dry_run:
        return plans[0]
    if fresh:
        seed_runs.set_aside(runs.folder)
    with ExitStack() as stack:
        interrupted = None
        if should_stop is None and threading.current_thread() is threading.main_thread():
            should_stop = interrupted = stack.enter_context(stop_on_signal(signal.SIGINT))
        display = choose_display(not is_shown(quiet, verbose))
        trained = seed_runs.train_seeds(runs, runs.unfinished(), display, should_stop or (lambda: False))
    if interrupted is not None and interrupted():
        raise KeyboardInterrupt
    if trained.failures:
        reasons = "; ".join(f"{failure.job.name}: {failure.describe()}" for failure in trained.failures)
        raise UserError(f"{len(trained.failures)} of {seeds} runs failed; the same call tries them again; {reasons}")
    return [System.load(folder) for folder in runs.folders if (folder / WEIGHTS).exists()]


def _race(
    job: Job, budget: str | float, workers: int | None, fresh: bool, quiet: bool, verbose: bool,
    should_stop: Callable[[], bool] | None,
) -> dict[str, Any]:  # fmt: skip
    """Race for the best model within a budget, and return the settings of the winner."""
    is_silent = not is_shown(quiet, verbose)
    with ExitStack() as stack:
        display = choose_display(is_silent)
        stack.callback(display.close)
        if should_stop is None and threading.current_thread() is threading.main_thread():
            should_stop = stack.enter_context(stop_on_signal(signal.SIGINT))
        winner = run_race(
            job, parse_budget(budget), workers=workers, fresh=fresh, display=display,
            should_stop=should_stop or (lambda: False),
        )  # fmt: skip
    if winner is None:
        raise KeyboardInterrupt
    if not is_silent:
        print(winner.table.to_text())
    return dict(winner.settings)


def _plan_printer(quiet: bool, verbose: bool, on_plan: OnPlan | None) -> OnPlan:
    """Return what prints a plan where a call shows something, and passes it on."""

    def show(plan: Plan, trainer: Trainer, folder: Path) -> None:
        if is_shown(quiet, verbose):
            print_plan(plan, trainer, every_setting=verbose)
        if on_plan is not None:
            on_plan(plan, trainer, folder)

    return show
