"""The folder of a run: which run it belongs to, and how another run is kept out of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dragoman import __version__
from dragoman.config import ConfigError
from dragoman.data.reading.read import DataSource, as_paths
from dragoman.data.reading.rows import TABLE_SUFFIXES
from dragoman.errors import UserError
from dragoman.files import HeldFolder, damaged_file, exclusive_lock, read_json, write_json
from dragoman.runs.history import AUDIT
from dragoman.runs.setup import MAY_CHANGE, Setup, name_run, read_recipe
from dragoman.tables import shorten

SHOWN = 4  # differences that a message names
LONGEST = 60  # characters of a value in a message

IDENTITY = "run.json"
TRANSFERS = "init.json"
CHECKPOINT = "checkpoint.safetensors"
PREVIOUS_CHECKPOINT = "checkpoint.previous.safetensors"
CHECKPOINTS = (CHECKPOINT, PREVIOUS_CHECKPOINT)  # the newest one first
RACE_FOLDER = "race"  # the race that chose the run's model, if one did
RACE_TABLE = "table.txt"  # in that folder
ENSEMBLE_FOLDER = "ensemble"  # the runs that the run was distilled from, if it was


@dataclass(frozen=True, slots=True)
class NewRun:
    """What a folder records of a run before its first update."""

    setup: Setup
    fingerprint: str  # of the data
    audit: Mapping[str, Any]  # of the data, as plain values
    origins: Mapping[str, str]  # runs whose weights it starts from, with a digest of these
    transfers: Sequence[Mapping[str, Any]]  # what became of those weights, as plain values


def default_folder(train: DataSource) -> Path:
    """Return the folder of a run on these files: runs/NAME; on a table in memory: runs/table."""
    paths = as_paths(train)
    if not paths:
        return Path("runs") / "table"
    first = str(paths[0])
    if first == "-":
        return Path("runs") / "stdin"
    name = re.sub(r"[*?\[\]]+", "", Path(first).name)  # a pattern for several files
    for ending in (".gz", ".txt", *TABLE_SUFFIXES):
        name = name.removesuffix(ending)
    name = name.strip("-_. ") if name != Path(first).name else name
    return Path("runs") / (name or "run")


@contextmanager
def reserve_folder(folder: Path, run: NewRun, *, fresh: bool) -> Iterator[HeldFolder]:
    """Reserve a folder for one run, and for one process that trains it.

    A folder that holds this very run already is taken as it is. ``fresh``: an old run in it is
    moved out of the way.
    """
    if fresh and any((folder / name).exists() for name in (IDENTITY, *CHECKPOINTS)):
        with exclusive_lock(folder):
            move_aside(folder)
    if not (folder / IDENTITY).exists():
        _refuse_unknown_files(folder)
    with exclusive_lock(folder) as held:
        _record(folder, run)
        yield held


def check_folder(folder: Path, run: NewRun) -> None:
    """Raise the error with which ``reserve_folder`` would refuse the folder. Nothing is written."""
    if (folder / IDENTITY).exists():
        _refuse_another_run(folder, _identity(run))
    else:
        _refuse_unknown_files(folder)


def holds_exactly(folder: Path, run: NewRun) -> bool:
    """Return whether the folder's run was last trained with all these settings, limits included."""
    path = folder / IDENTITY
    if not path.exists():
        return False
    recorded, wanted = read_json(path), json.loads(json.dumps(_identity(run)))
    return all(recorded.get(key) == wanted.get(key) for key in ("recipe", "data", "origins"))


def recorded_shares(folder: Path) -> int | None:
    """Return in how many shares the run of a folder deals out its batches, if there is one that says so."""
    with suppress(UserError):  # a damaged file is refused with a sentence when the folder is reserved
        recipe = read_json(folder / IDENTITY).get("recipe")
        training = recipe.get("training") if isinstance(recipe, dict) else None
        shares = training.get("shares") if isinstance(training, dict) else None
        return shares if isinstance(shares, int) and shares > 0 else None
    return None


def with_recorded_shares(run: NewRun, folder: Path) -> NewRun:
    """Return the run with the number of shares that the run of a folder has, if there is one."""
    if (shares := recorded_shares(folder)) is None:
        return run
    recipe = run.setup.recipe
    training = recipe.training.model_copy(update={"shares": shares})
    return replace(run, setup=replace(run.setup, recipe=recipe.model_copy(update={"training": training})))


def move_aside(folder: Path) -> None:
    """Rename a folder to NAME.old-1, or the next number that is free."""
    if folder.exists():
        if Path.cwd().is_relative_to(folder.resolve()):
            raise UserError(f"--fresh: {folder} is the folder you are in and cannot be set aside; choose another --out")
        number = 1
        while (old := folder.with_name(f"{folder.name}.old-{number}")).exists():
            number += 1
        folder.rename(old)


def read_race_table(folder: Path) -> str:
    """Return the table of the race that chose the model of a run; empty if none did."""
    path = folder / RACE_FOLDER / RACE_TABLE
    return path.read_text(encoding="utf-8") if path.is_file() and not path.is_symlink() else ""


def _refuse_unknown_files(folder: Path) -> None:
    """Refuse a folder with files that training could overwrite."""
    if any((folder / name).exists() for name in CHECKPOINTS):
        raise UserError(
            f"{folder}: holds a checkpoint, but not the {IDENTITY} that says what it belongs to; "
            "choose another --out, or --fresh to set the old files aside"
        )
    # hidden files do not count: an interrupted write leaves one, and so do file managers
    known = (RACE_FOLDER, ENSEMBLE_FOLDER)
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    others = sorted(name for name in names if name[0] != "." and name not in known)
    if others:
        raise UserError(
            f"{folder}: holds files that belong to no run ({', '.join(others[:3])}{', …' if len(others) > 3 else ''}), "
            "and training could write over them; choose another --out"
        )


def _record(folder: Path, run: NewRun) -> None:
    """Check that the folder holds no other run, and write what is known of this one."""
    identity = _identity(run)
    path = folder / IDENTITY
    name = name_run(identity)
    if path.exists():
        name = _refuse_another_run(folder, identity)
    # before all else: files in a folder without it belong to nobody
    write_json(path, {"version": __version__, **identity, "run": name})
    run.setup.write(folder, name)
    write_json(folder / AUDIT, run.audit)
    if run.transfers:
        write_json(folder / TRANSFERS, list(run.transfers))


def _identity(run: NewRun) -> dict[str, Any]:
    """Return what tells a run from others."""
    identity: dict[str, Any] = {"recipe": run.setup.recipe.dump(), "data": run.fingerprint}
    if run.origins:
        identity["origins"] = dict(run.origins)
    return identity


def recorded_run_name(folder: Path) -> str | None:
    """Return the name of the run that a folder belongs to; empty: it has none; None: it belongs to no run yet."""
    path = folder / IDENTITY
    return str(read_json(path).get("run", "")) if path.exists() else None


def _refuse_another_run(folder: Path, identity: Mapping[str, Any]) -> str:
    """Refuse a folder whose run is not the one of this identity, and return the name of the run."""
    differences, name = _differences_from(folder / IDENTITY, identity)
    if differences:
        more = f" and {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
        raise UserError(
            f"{folder}: holds another run (different: {'; '.join(differences[:SHOWN])}{more}); "
            "choose another --out, or --fresh to set the old run aside"
        )
    return name


def _differences_from(path: Path, identity: Mapping[str, Any]) -> tuple[list[str], str]:
    """Return in what the run of ``path`` differs from the run of this identity, and the run's name."""
    advice = "--fresh sets the old run aside and starts anew"
    recorded = read_json(path, advice=advice)
    try:
        # through the recipe: settings that an earlier version did not have get their defaults
        recipe, data = read_recipe(recorded["recipe"], path, recorded.get("version")).dump(), recorded["data"]
    except ConfigError as error:
        raise ConfigError(f"{error}; {advice}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged_file(path, error, advice) from None
    if recipe["training"]["shares"] is None:  # a run of an earlier version, which had one share for each thread
        recipe["training"]["shares"] = identity["recipe"]["training"]["shares"]
    differences = _setting_differences(recipe, identity["recipe"])
    if data != identity["data"]:
        differences.append("the data")
    if recorded.get("origins", {}) != identity.get("origins", {}):
        differences.append("the weights of the runs it starts from")
    return differences, str(recorded.get("run", ""))  # the runs of earlier versions have no name


def _setting_differences(old: Any, new: Any, path: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        differences = []
        for key in [*old, *(key for key in new if key not in old)]:
            inner = f"{path}.{key}" if path else key
            if inner not in MAY_CHANGE:
                differences += _setting_differences(old.get(key), new.get(key), inner)
        return differences
    return [] if old == new else [f"{path}: {_short(old)} → {_short(new)}"]


def _short(value: Any) -> str:
    """Return a setting in a few words: of a table, its kind."""
    if isinstance(value, dict):
        return repr(value["kind"]) if "kind" in value else "a table" if value else "none"
    return "none" if value is None else shorten(repr(value), LONGEST)
