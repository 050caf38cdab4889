"""Run an experiment: train with the command line as a user would, store every result, skip what is done.

A script declares what its runs are called, how its data are read and how one run is made, and calls ``start``:

    python experiments/NAME/run.py --data FOLDER    # make the results that are missing, and write the page
    python experiments/NAME/run.py --table          # only write the page, from the results that are there
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from datasets import write

from dragoman.errors import UserError

EXPERIMENTS = Path(__file__).resolve().parent
SPLITS = ("train", "dev", "test")
WRONG_FOLDER = "is --data the folder of this experiment's data set?"

Result = dict[str, Any]  # one JSON file
Prepared = TypeVar("Prepared")


class Files(NamedTuple):
    train: Path
    dev: Path | None
    test: Path


@dataclass(frozen=True)
class Experiment:
    """The options of an experiment, and what its scripts share."""

    folder: Path  # of the script
    runs: Path
    results: Path
    threads: int  # of each run
    parallel: int  # runs at the same time
    options: argparse.Namespace

    # ---- data

    @property
    def data(self) -> Path:
        """The folder of the data set. Only a run that has no result yet needs it."""
        folder: Path | None = self.options.data
        if folder is None:
            raise UserError("--data FOLDER is needed, unless only the page is to be written (--table)")
        if not folder.is_dir():
            raise UserError(f"--data {folder}: there is no such folder")
        return folder

    def write_splits(self, rows: Mapping[str, Iterable[Sequence[str]]], name: str = "") -> Files:
        """Write the rows of train, dev and test as tables among the runs."""
        prefix = f"{name}." if name else ""
        train, dev, test = (write(rows[split], self.runs / "data" / f"{prefix}{split}.tsv") for split in SPLITS)
        return Files(train, dev, test)

    # ---- results

    def path(self, name: str) -> Path:
        return self.results / f"{name}.json"

    def load(self, name: str) -> Result:
        result: Result = json.loads(self.path(name).read_text(encoding="utf-8"))
        return result

    def save(self, name: str, result: Result) -> Result:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return result

    def collect(
        self, names: Sequence[str], prepare: Callable[[], Prepared], run: Callable[[str, Prepared], object]
    ) -> dict[str, Result]:
        """Make the results that are missing, and return all that are there, in the order of ``names``.

        ``prepare`` reads the data; it is called once, and only where a result is missing. ``run`` makes and saves the
        result of one name.
        """
        chosen = self.options.only or names
        for name in chosen:
            if name not in names:
                raise UserError(f"--only {name}: there is no such run; there are {', '.join(names)}")
        missing = [name for name in chosen if not self.options.table and not self.path(name).exists()]
        if missing:
            prepared = prepare()
            with ThreadPoolExecutor(self.parallel) as pool:
                list(pool.map(lambda name: run(name, prepared), missing))
        results = {name: self.load(name) for name in names if self.path(name).exists()}
        if not results:
            raise UserError(f"{self.results}: there is no result yet; run without --table first")
        return results

    # ---- runs

    def command(self, arguments: Sequence[str], log: str, *, threads: int = 1, output: Path | None = None) -> float:
        """Run one command of the command line, with its messages in a log; return how many seconds it took."""
        began = time.monotonic()
        path = self.runs / f"{log}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "dragoman", *arguments]
        environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        with open(path, "a") as messages, open(output, "w") if output else nullcontext(messages) as out:
            process = subprocess.run(command, stdout=out, stderr=messages, env=environment)
        if process.returncode:
            end = "".join(path.read_text(errors="replace").splitlines(keepends=True)[-5:])
            raise subprocess.CalledProcessError(process.returncode, command, f"The end of {path}:\n{end}")
        return time.monotonic() - began

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return everything that a training reported, in order."""
        return [json.loads(line) for line in (self.runs / name / "metrics.jsonl").read_text().splitlines()]

    def config(self, name: str) -> list[str]:
        """Return the options that choose the settings file ``NAME.toml`` of the experiment."""
        return ["--config", str(self.folder / f"{name}.toml")]

    def train(self, name: str, files: Files, options: Sequence[str] = ()) -> Result:
        """Train a run and evaluate it on the test file."""
        for path in files:
            if path is not None and not path.is_file():
                raise UserError(f"{path}: No such file; {WRONG_FOLDER}")
        options = [*options, *(word for setting in self.options.set for word in ("--set", setting))]
        command = ["train", str(files.train), "--test", str(files.test), "--out", str(self.runs / name), *options]
        command += ["--dev", str(files.dev)] if files.dev else []
        command += ["--set", f"training.threads={self.threads}"]
        seconds = self.command(command, name, threads=self.threads)
        evaluation = json.loads((self.runs / name / "evaluation.json").read_text())
        last = self.events(name)[-1]
        result = {
            "name": name,
            **summarize_scores(evaluation["scores"]),
            "updates": last["update"],
            "training_seconds": round(last["seconds"], 1),
            "whole_seconds": round(max(seconds, last["seconds"]), 1),  # a resumed run reports all of its time
            "threads": self.threads,
            # a settings file by its place in this folder, another run by its name
            "options": [option.removeprefix(f"{EXPERIMENTS}/").removeprefix(f"{self.runs}/") for option in options],
            **describe_machine(),
        }
        return self.save(name, result)

    def evaluate(self, run: str, test: Path, log: str, options: Sequence[str] = ()) -> tuple[dict[str, Any], float]:
        """Evaluate a run on a file; return the scores and how many seconds it took."""
        output = self.runs / f"{log}.json"
        arguments = ["evaluate", str(self.runs / run), str(test), *options, "--json"]
        seconds = self.command(arguments, log, output=output)
        return json.loads(output.read_text())["scores"], seconds

    def evaluate_again(self, name: str, run: str, test: Path, options: Sequence[str] = ()) -> Result:
        """Evaluate a run on another file, or with other options of the search, as a result of its own."""
        first = self.load(run)
        scores, seconds = self.evaluate(run, test, name, options)
        result = {
            "name": name,
            **summarize_scores(scores),
            "updates": first["updates"],
            "training_seconds": first["training_seconds"],
            "whole_seconds": round(first["whole_seconds"] + seconds, 1),
            "threads": first["threads"],
            "members": [run],
            "options": list(options),
            **describe_machine(),
        }
        return self.save(name, result)

    def draw_overlays(self, run: str, choose_pictures: Callable[[], Sequence[str]], name: str) -> None:
        """Draw the attention of a run over pictures, as a JPEG file for the page, unless the file is there."""
        from PIL import Image

        sheet = self.folder / name
        if self.options.table or not self.is_published or sheet.exists():
            return
        drawing = self.runs / f"{sheet.stem}.png"
        self.command(["inspect", str(self.runs / run), *choose_pictures(), "-o", str(drawing)], "inspect")
        with Image.open(drawing) as picture:
            picture.convert("RGB").save(sheet, quality=85, optimize=True)

    # ---- page

    @property
    def is_published(self) -> bool:
        """Whether the results are those of the experiment's page, not of a trial elsewhere."""
        return self.results.is_relative_to(self.folder)

    def publish(self, page: str, *, name: str = "README.md", is_complete: bool = True) -> None:
        """Print a page, and write it beside the script. A page with runs missing is printed only."""
        print(page)
        if self.is_published and is_complete:
            (self.folder / name).write_text(page, encoding="utf-8")


def summarize_scores(scores: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "scores": {key: score["value"] for key, score in scores.items()},
        "intervals": {key: [score["low"], score["high"]] for key, score in scores.items()},
    }


def describe_machine() -> dict[str, Any]:
    """Return the date, versions and machine of a result."""
    import torch

    import dragoman

    cpu = platform.processor()
    if Path("/proc/cpuinfo").exists():
        names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].partition(":")[2].strip() if names else cpu
    return {
        "date": date.today().isoformat(),
        "dragoman": dragoman.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "cpu": cpu,
        "cores": os.cpu_count(),
    }


def start(
    main: Callable[[Experiment], None],
    script: str,
    about: str | None,
    *,
    parallel: int | None = None,
    extra: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Run the experiment of a script, and turn a mistake of its user into a sentence.

    With ``parallel``, several runs may be made at the same time, by default so many. ``extra`` are more options.
    """
    folder = Path(script).resolve().parent
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the data set")
    parser.add_argument("--runs", type=Path, default=Path("runs") / folder.name, help="where runs are trained")
    parser.add_argument(
        "--results", type=Path, default=folder / "results", help="another folder, to try out settings without the page"
    )
    parser.add_argument("--threads", type=int, help="of each run; without it, all cores are used")
    parser.add_argument("--only", nargs="*", metavar="NAME", help="make the results of these runs only")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="change settings, to try out")
    parser.add_argument("--table", action="store_true", help="only write the page, from the results that are there")
    if parallel is not None:
        parser.add_argument("--parallel", type=int, default=parallel, help="runs at the same time")
    for name, settings in (extra or {}).items():
        parser.add_argument(name, **settings)
    options = parser.parse_args()
    at_once = options.parallel if parallel is not None else 1
    threads = options.threads or max(1, (os.cpu_count() or 1) // at_once)
    experiment = Experiment(folder, options.runs, options.results.resolve(), threads, at_once, options)
    tell_mistakes(lambda: main(experiment), options.data)


def tell_mistakes(main: Callable[[], None], data: Path | None = None) -> None:
    """Run a program; print a mistake of its user, or the end of a failed command, without a traceback."""
    try:
        main()
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:  # a file that the data set should have
        if data is None or error.filename is None or not Path(error.filename).is_relative_to(data):
            raise
        print(f"{error.filename}: {error.strerror}; {WRONG_FOLDER}", file=sys.stderr)
        sys.exit(UserError.exit_code)
    except subprocess.CalledProcessError as error:
        sys.exit(f"{shlex.join(error.cmd)}\nended with {error.returncode}. {error.output or ''}".rstrip())
