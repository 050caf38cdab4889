"""What the experiments share: train with the command line as a user would, skip what is done, keep a table."""

from __future__ import annotations

import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def program(main: Callable[[], None]) -> None:
    """An experiment as a program: what a person can mend is told in a sentence."""
    try:
        main()
    except OSError as problem:
        if problem.filename is None:
            raise
        sys.exit(f"{problem.filename}: {problem.strerror}; is --data the folder of this experiment's data set?")
    except subprocess.CalledProcessError as problem:
        sys.exit(f"{shlex.join(problem.cmd)}\nended with {problem.returncode}. {problem.output or ''}".rstrip())


def machine() -> dict[str, Any]:
    """Where the figures were made."""
    import torch

    import dragoman

    model = platform.processor()
    if Path("/proc/cpuinfo").exists():
        names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    return {
        "date": date.today().isoformat(),
        "dragoman": dragoman.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": model,
        "cores": os.cpu_count(),
    }


def made_with(result: dict[str, Any]) -> str:
    """The versions and the machine of a result, for the last line of a page."""
    return (
        f"Dragoman {result['dragoman']}, torch {result['torch']}, Python {result['python']}, {result['cores']} cores of "
        f"{result['cpu']}"
    )


def dragoman(arguments: Sequence[str], log: Path, threads: int, output: Path | None = None) -> float:
    """One command of the command line, what it says kept in ``log``; how many seconds it took."""
    began = time.monotonic()
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "dragoman.cli", *arguments]
    with open(log, "a") as said, open(output, "w") if output else nullcontext(said) as out:
        ended = subprocess.run(command, stdout=out, stderr=said, env=environment)
    if ended.returncode:
        last = "".join(log.read_text(errors="replace").splitlines(keepends=True)[-5:])
        raise subprocess.CalledProcessError(ended.returncode, command, f"The end of {log}:\n{last}")
    return time.monotonic() - began


def events(folder: Path) -> list[dict[str, Any]]:
    """All that a training reported, in order."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def write_result(path: Path, result: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n")


def run(
    name: str,
    train: Path,
    dev: Path | None,
    test: Path,
    runs: Path,
    results: Path,
    options: Sequence[str],
    threads: int,
) -> dict[str, Any]:
    """Train and evaluate one data set, unless its result is there already. The result is one JSON file."""
    result = results / f"{name}.json"
    if result.exists():
        return json.loads(result.read_text())
    folder = runs / name
    command = ["train", str(train), "--test", str(test), "--out", str(folder), *options]
    command += ["--dev", str(dev)] if dev else []
    command += ["--set", f"training.threads={threads}"]
    seconds = dragoman(command, runs / f"{name}.log", threads)
    evaluation = json.loads((folder / "evaluation.json").read_text())
    stopped = events(folder)[-1]
    plain = {
        "name": name,
        "scores": {key: score["value"] for key, score in evaluation["scores"].items()},
        "intervals": {key: [score["low"], score["high"]] for key, score in evaluation["scores"].items()},
        "updates": stopped["update"],
        "training_seconds": round(stopped["seconds"], 1),
        "whole_seconds": round(max(seconds, stopped["seconds"]), 1),  # the latter over all sittings
        "threads": threads,
        # a settings file by its place here, another run by its name
        "options": [option.removeprefix(f"{HERE}/").removeprefix(f"{runs}/") for option in options],
        **machine(),
    }
    write_result(result, plain)
    return plain


def run_together(
    name: str, members: Sequence[dict[str, Any]], test: Path, runs: Path, results: Path, options: Sequence[str] = ()
) -> dict[str, Any]:
    """Runs that are there already, measured on ``test`` as an ensemble. Their trainings count as one behind the other.

    Of one run alone: as it is, with other ``options`` of the search.
    """
    result = results / f"{name}.json"
    if result.exists():
        return json.loads(result.read_text())
    first, *others = (str(runs / member["name"]) for member in members)
    ensemble = [word for other in others for word in ("--ensemble", other)]
    output = runs / f"{name}.json"
    command = ["evaluate", first, str(test), *ensemble, *options, "--json"]
    seconds = dragoman(command, runs / f"{name}.log", 1, output)
    scores = json.loads(output.read_text())["scores"]
    plain = {
        "name": name,
        "scores": {key: score["value"] for key, score in scores.items()},
        "intervals": {key: [score["low"], score["high"]] for key, score in scores.items()},
        "updates": sum(member["updates"] for member in members),
        "training_seconds": round(sum(member["training_seconds"] for member in members), 1),
        "whole_seconds": round(sum(member["whole_seconds"] for member in members) + seconds, 1),
        "threads": members[0]["threads"],
        "members": [member["name"] for member in members],
        "options": list(options),
        **machine(),
    }
    write_result(result, plain)
    return plain


def run_all(jobs: Sequence[dict[str, Any]], parallel: int) -> list[dict[str, Any]]:
    """Several runs side by side, each with its share of the cores."""
    with ThreadPoolExecutor(parallel) as pool:
        return list(pool.map(lambda job: run(**job), jobs))
