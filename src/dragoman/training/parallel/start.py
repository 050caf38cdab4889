"""What the processes of a training settle before the first update."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from safetensors.torch import load, save

from dragoman.data.reading.read import DataSource
from dragoman.errors import UserError
from dragoman.process.place import find_place
from dragoman.runs.folder import NewRun, recorded_shares
from dragoman.training.checkpoints.checkpoint import Checkpoint
from dragoman.training.checkpoints.progress import Progress
from dragoman.training.parallel.choosing import count_shares
from dragoman.training.parallel.processes import Processes
from dragoman.training.plan import Plan


def refuse_under_torchrun(*files: DataSource | None, fresh: bool) -> None:
    """Refuse what cannot be repeated by every process and after every restart."""
    place = find_place()
    if place.may_restart and fresh:
        raise UserError(
            "--fresh: torchrun repeats the command when it restarts a process, and each time the run would start "
            "again; rename or remove the folder of the old run first, or choose another --out"
        )
    named = [name for file in files for name in (file if isinstance(file, list | tuple) else [file])]
    if (place.count > 1 or place.may_restart) and any(isinstance(name, str) and name == "-" for name in named):
        raise UserError("-: several processes cannot read one standard input; give the name of a file")


def fix_shares(planned: Plan, folder: Path | None, processes: Processes) -> Plan:
    """Return the plan with the number of shares that the run keeps: training.shares.

    It is what was asked for, or what the run in ``folder`` has, or what suits these threads and
    processes.
    """
    system = planned.system
    training = system.recipe.training

    def choose() -> int:
        shares = training.shares or (None if folder is None else recorded_shares(folder))
        return count_shares(system.model, training.model_copy(update={"shares": shares}), processes)

    training = training.model_copy(update={"shares": processes.on_first(choose)})
    recipe = system.recipe.model_copy(update={"training": training})
    return replace(planned, system=replace(system, recipe=recipe))


def check_same(processes: Processes, run: NewRun) -> None:
    """Raise an error where the processes have read different data or settings."""
    if processes.count == 1:
        return

    def compare() -> None:
        setup = run.setup
        settings = setup.recipe.dump()
        for name in ("device", "threads", "loaders"):
            del settings["training"][name]  # they may suit the machine
        texts = {
            "settings": json.dumps([settings, setup.lengths.model_dump()]),
            "data": run.fingerprint,
            "tokenisers": json.dumps([setup.target.size, setup.target.pieces(list(range(setup.target.size)))]),
        }
        digests = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in texts.items()}
        for rank, theirs in enumerate(processes.gather(digests)):
            different = [name for name, digest in digests.items() if theirs[name] != digest]
            if different and processes.is_first:
                raise UserError(
                    f"process {rank} has other {' and '.join(different)} than process 0; all processes need the same "
                    "files, the same command and the same version"
                )

    processes.together(compare)


def pass_checkpoint(processes: Processes, find: Callable[[], Checkpoint | None]) -> Checkpoint | None:
    """Return the checkpoint that the first process finds.

    The other processes need not see the folder of the run.
    """
    found: list[Checkpoint | None] = [None]

    def look() -> Any:
        found[0] = find()
        return None if found[0] is None else asdict(found[0].progress)

    progress = processes.on_first(look)
    if progress is None or processes.count == 1:
        return found[0]
    data = processes.pass_bytes(b"" if found[0] is None else save(dict(found[0].tensors)))
    return found[0] or Checkpoint(Progress.from_plain(progress), load(data))
