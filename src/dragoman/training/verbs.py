"""``dragoman.train``: the options of the command line as arguments, with a display of the progress."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dragoman.data.splits import PathLike
from dragoman.inference.system import System
from dragoman.process.signals import stop_on_signal
from dragoman.recipe.arguments import data_settings, run_path, with_arguments
from dragoman.recipe.layers import ConfigSource, Overrides, read_overrides
from dragoman.training import run
from dragoman.training.display import library_progress
from dragoman.training.events import Event
from dragoman.training.plan import Plan
from dragoman.training.trainer import Trainer


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
    device: str | None = None,
    fresh: bool = False,
    quiet: bool = False,
    verbose: bool = False,
    on_plan: Callable[[Plan, Trainer, Path], None] | None = None,
    on_event: Callable[[Event], None] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> System:
    """Train on paired data (or plain text, with a preset for it) and return the system.

    The arguments are the options of ``dragoman train``. Everything is saved in ``out`` (default: runs/NAME), and the
    same call again resumes from there. ``config`` is the path of a TOML file, or a mapping; ``settings`` a mapping with
    nested or dotted keys, or strings as for ``--set``.

    On a terminal and in a notebook, the plan and the progress are shown; ``quiet=True`` shows nothing, ``verbose=True``
    more. ``on_plan`` is called with the plan, the trainer and the folder before the first update, and ``on_event`` with
    every event of training (``dragoman.training.events``), last the report on the final weights (``Evaluated``).
    ``should_stop`` is asked between updates: when it returns True, training stops as Ctrl-C stops it, and the system is
    returned as far as it is trained. Ctrl-C saves everything, and then raises ``KeyboardInterrupt``.

    >>> system = dragoman.train("train.tsv", dev="dev.tsv", out="runs/new", settings=["training.max_updates=2"])
    >>> system
    System(auto, ... parameters, runs/new)
    """
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
