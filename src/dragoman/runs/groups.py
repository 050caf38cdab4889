"""Folders of several runs: the seeds of one model, each in a run folder of its own."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from dragoman.errors import UserError
from dragoman.files import is_link
from dragoman.runs.setup import CONFIG

SEED_FOLDER = re.compile(r"seed-(\d+)")


def seed_folder(group: Path, seed: int) -> Path:
    """Return the run folder of one seed of a group."""
    return group / f"seed-{seed}"


def seed_folders(folder: Path) -> list[Path]:
    """Return the run folders of a group in the order of their seeds; nothing where it is none."""
    if not folder.is_dir() or (folder / CONFIG).exists():
        return []
    seeds = {int(match[1]): path for path in folder.iterdir() if (match := SEED_FOLDER.fullmatch(path.name))}
    return [path for _, path in sorted(seeds.items()) if path.is_dir()]


def refuse_links(group: Path, folders: Iterable[Path]) -> None:
    """Refuse to train in run folders of a group that are links, or below links, to places outside of it."""
    for folder in folders:
        for place in (folder, *folder.parents):
            if place == group:
                break
            if is_link(place):
                raise UserError(
                    f"{place}: this is a symbolic link, where a folder of {group} should be; nothing is written "
                    "through it; remove it, or choose another --out"
                )


def is_run(folder: Path) -> bool:
    """Return whether this is the folder of a run, or of the seeds of one."""
    return (folder / CONFIG).exists() or bool(seed_folders(folder))


def runs_of(folder: Path) -> list[Path]:
    """Return the run folders that a path stands for: itself, or all its seeds."""
    seeds = seed_folders(folder)
    untrained = [path.name for path in seeds if not (path / CONFIG).exists()]
    if untrained:
        raise UserError(f"{folder}: {', '.join(untrained)} has no trained run yet; the command that trains it resumes")
    return seeds or [folder]
