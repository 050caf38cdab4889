"""The folder of a run: whose it is, whether this is the same run, how to set an old one aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dragoman.config import ConfigError
from dragoman.errors import UserError
from dragoman.files import write_json
from dragoman.planning import Paths, Plan
from dragoman.recipe import make_recipe

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


def claim(folder: Path, settled: Plan) -> None:
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
    elif (folder / "checkpoint.safetensors").exists():
        raise UserError(
            f"{folder}: holds a checkpoint, but not the run.json that says what it belongs to; "
            "choose another --out, or --fresh to set the old files aside"
        )
    folder.mkdir(parents=True, exist_ok=True)
    settled.system.save_setup(folder)
    write_json(folder / "audit.json", settled.data.to_json())
    if settled.transfers:
        write_json(folder / "init.json", [transfer.to_json() for transfer in settled.transfers])
    write_json(path, identity)


def evaluated(folder: Path) -> int | None:
    """The update whose weights were last measured."""
    path = folder / "evaluation.json"
    return json.loads(path.read_text(encoding="utf-8"))["update"] if path.exists() else None


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
