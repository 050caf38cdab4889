"""The folder of a run: whose it is, whether this is the same run, how to set an old one aside."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dragoman.config import ConfigError
from dragoman.errors import UserError
from dragoman.files import alone_in, write_json
from dragoman.planning import Plan
from dragoman.recipe import make_recipe
from dragoman.sides import Paths

# Settings that may change between two sittings of one run: they say how long and where, not what is trained.
MAY_CHANGE = {
    *(f"training.{name}" for name in ("max_updates", "max_epochs", "max_time", "patience", "save_every", "log_every")),
    *(f"training.{name}" for name in ("device", "threads", "loaders")),
    "data.cache",
}


def default_folder(train: Paths) -> Path:
    first = str(train if isinstance(train, (str, Path)) else train[0])
    if first == "-":
        return Path("runs") / "stdin"
    name = Path(first).name
    for ending in (".gz", ".tsv", ".txt", ".jsonl"):
        name = name.removesuffix(ending)
    return Path("runs") / (name or "run")


@contextmanager
def claimed(folder: Path, settled: Plan, *, fresh: bool) -> Iterator[None]:
    """The folder is this run's, and nobody else trains in it. ``fresh``: an old run in it is set aside."""
    if fresh and any((folder / name).exists() for name in ("run.json", "checkpoint.safetensors")):
        with alone_in(folder):
            set_aside(folder)
    if not (folder / "run.json").exists():
        _refuse_others(folder)
    with alone_in(folder):
        _claim(folder, settled)
        yield


def _refuse_others(folder: Path) -> None:
    if (folder / "checkpoint.safetensors").exists():
        raise UserError(
            f"{folder}: holds a checkpoint, but not the run.json that says what it belongs to; "
            "choose another --out, or --fresh to set the old files aside"
        )
    # hidden ones do not count: an interrupted write leaves one, and so do file managers
    others = sorted(one.name for one in folder.iterdir() if one.name[0] != ".") if folder.is_dir() else []
    if others:
        raise UserError(
            f"{folder}: holds files that belong to no run ({', '.join(others[:3])}{', …' if len(others) > 3 else ''}), "
            "and training could write over them; choose another --out"
        )


def _claim(folder: Path, settled: Plan) -> None:
    """Write what is settled, or see that what is there is the same run."""
    identity: dict[str, Any] = {"recipe": settled.system.recipe.dump(), "data": settled.data.fingerprint()}
    if settled.origins:
        identity["origins"] = settled.origins
    path = folder / "run.json"
    if path.exists():
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            # through the recipe: what an earlier version did not know yet has its default there
            old_recipe, old_data = make_recipe(found["recipe"], str(path)).dump(), found["data"]
        except (ConfigError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path}: damaged ({error}); --fresh sets the old run aside and starts anew") from None
        different = _differences(old_recipe, identity["recipe"])
        if old_data != identity["data"]:
            different.append("the data")
        if found.get("origins", {}) != settled.origins:
            different.append("the weights of the runs it starts from")
        if different:
            raise UserError(
                f"{folder}: holds another run (different: {'; '.join(different[:4])}); "
                "choose another --out, or --fresh to set the old run aside"
            )
    write_json(path, identity)  # before all else: a folder with anything in it and without this is somebody else's
    settled.system.save_setup(folder)
    write_json(folder / "audit.json", settled.data.to_json())
    if settled.transfers:
        write_json(folder / "init.json", [transfer.to_json() for transfer in settled.transfers])


def evaluated(folder: Path) -> int | None:
    """The update whose weights were last measured; None also where the record is damaged."""
    try:
        return json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))["update"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def set_aside(folder: Path) -> None:
    if folder.exists():
        if Path.cwd().is_relative_to(folder.resolve()):
            raise UserError(f"--fresh: {folder} is the folder you are in and cannot be set aside; choose another --out")
        number = 1
        while (old := folder.with_name(f"{folder.name}.old-{number}")).exists():
            number += 1
        folder.rename(old)


def _differences(old: Any, new: Any, path: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key in [*old, *(key for key in new if key not in old)]:
            inner = f"{path}.{key}" if path else key
            if inner not in MAY_CHANGE:
                found += _differences(old.get(key), new.get(key), inner)
        return found
    return [] if old == new else [f"{path}: {old!r} → {new!r}"]
