"""Which family of models should be the default? Every family on data of different kinds, each with the same time.

    python experiments/auto/run.py --data FOLDER [--seconds 90] [--parallel 1] [--only g2p scan …] [--families …]
    python experiments/auto/run.py --table

FOLDER has the folders of the data sets (see SETS). A family is a settings file beside this script: a new file there is
tried too. Results are in results/SET.FAMILY.json; one made with the same seconds is not made again.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from datasets import columns, inflections, paired
from runner import SPLITS, Experiment, Files, Result, describe_machine, start
from tables import made_with, mean, page, table

from dragoman.errors import UserError

FOLDER = Path(__file__).resolve().parent
FAMILIES = sorted(path.stem for path in FOLDER.glob("*.toml"))
DEV_ROWS, TEST_ROWS = 400, 1000  # spread evenly over the files
SHARE = 0.8  # of the seconds, for updates; the rest is for validations
VALIDATIONS = 5
NO_LIMIT = 1_000_000  # epochs: the number of updates ends a run

Rows = list[tuple[str, str]]


@dataclass(frozen=True)
class Set:
    about: str
    read: Callable[[Path, str], Rows]  # data folder, split ("train", "dev", "test")
    train_rows: int | None = None  # at most so many, spread evenly


def _scan(data: Path, split: str) -> Rows:
    """Read SCAN, which has no dev file: every tenth training row is dev."""
    rows = columns(data / "scan" / f"simple_{'test' if split == 'test' else 'train'}.tsv")
    chosen = {"train": [row for i, row in enumerate(rows) if i % 10], "dev": rows[::10], "test": rows}
    return chosen[split]


def _multi30k(data: Path, split: str) -> Rows:
    name = {"train": "train", "dev": "val", "test": "test_2016_flickr"}[split]
    return paired(*(data / "multi30k" / "tok" / f"{name}.lc.norm.tok.{language}" for language in ("en", "de")))


def _level(split: str) -> str:
    return "train-high" if split == "train" else split


SETS = {
    "g2p": Set("Greek spelling to phones", lambda d, s: columns(d / "g2p_sigmorphon2020" / f"gre_{s}.tsv")),
    "inflection": Set(
        "Finnish lemma and tags to form",
        lambda d, s: inflections(d / "inflection_conll2017" / f"finnish.{_level(s)}.tsv"),
    ),
    "transliteration": Set(
        "names, Latin to Hebrew letters", lambda d, s: columns(d / "transliteration_wikidata" / f"en-hebrew.{s}.tsv")
    ),
    "normalisation": Set("old to modern German words", lambda d, s: columns(d / "histnorm" / f"german-ridges.{s}.tsv")),
    "spelling": Set("misspelt to right English words", lambda d, s: columns(d / "spelling_codespell" / f"{s}.tsv")),
    "scan": Set("commands to actions", _scan),
    "code": Set("English to lines of Python", lambda d, s: columns(d / "django_pseudocode" / f"{s}.tsv")),
    "captions": Set("English to German captions", _multi30k, train_rows=10_000),
    "few captions": Set("a tenth of these captions", _multi30k, train_rows=1_000),
    "few misspellings": Set(
        "a tenth of the misspellings", lambda d, s: columns(d / "spelling_codespell" / f"{s}.tsv"), train_rows=5_000
    ),
    "sentences": Set("English to Dutch sentences", lambda d, s: columns(d / "tatoeba_en_nl" / f"{s}.tsv")),
}
USUAL = ("g2p", "inflection", "transliteration", "spelling", "scan", "captions")  # 40 minutes on one core


def main(experiment: Experiment) -> None:
    if not experiment.options.table:
        try_families(experiment)
    results = [json.loads(path.read_text()) for path in sorted(experiment.results.glob("*.json"))]
    if not results:
        raise UserError(f"{experiment.results}: there is no result yet; run without --table first")
    experiment.publish(write_page(results))


def try_families(experiment: Experiment) -> None:
    """Train every chosen family on every chosen data set, unless its result is there."""
    names, families, seconds = experiment.options.only or USUAL, experiment.options.families, experiment.options.seconds
    for name in names:
        if name not in SETS:
            raise UserError(f"--only {name}: there is no such data set; there are {', '.join(SETS)}")
    files = {name: write_files(experiment, name) for name in names}
    pairs = [(name, family) for name in names for family in families if not is_done(experiment, name, family, seconds)]
    with ThreadPoolExecutor(experiment.parallel) as pool:
        list(pool.map(lambda pair: try_family(experiment, pair[0], pair[1], files[pair[0]], seconds), pairs))


def write_files(experiment: Experiment, name: str) -> Files:
    limits = {"train": SETS[name].train_rows, "dev": DEV_ROWS, "test": TEST_ROWS}
    rows = {split: spread(SETS[name].read(experiment.data, split), limits[split]) for split in SPLITS}
    return experiment.write_splits(rows, name)


def spread(rows: Rows, most: int | None) -> Rows:
    """Return ``most`` rows at even distances, in order, or all of them if there are no more."""
    if most is None or len(rows) <= most:
        return rows
    return [rows[index * len(rows) // most] for index in range(most)]


def is_done(experiment: Experiment, name: str, family: str, seconds: float) -> bool:
    result = f"{name}.{family}"
    return experiment.path(result).exists() and experiment.load(result)["seconds"] == seconds


def try_family(experiment: Experiment, name: str, family: str, files: Files, seconds: float) -> None:
    run = f"{name}.{family}.{seconds:g}"
    arguments = [str(files.train), str(files.dev), str(FOLDER / f"{family}.toml"), "1"]
    probe = subprocess.run(
        [sys.executable, str(FOLDER / "probe.py"), *arguments], check=True, capture_output=True, text=True
    )
    measured = json.loads(probe.stdout)
    updates = max(VALIDATIONS, int(SHARE * seconds / measured["seconds_an_update"]))
    training = {
        "max_updates": updates,
        "max_epochs": NO_LIMIT,
        "max_time": seconds,
        "validate_every": max(1, updates // VALIDATIONS),
        "patience": VALIDATIONS + 1,
        "threads": 1,
        "optim.warmup": min(measured["warmup"], updates // 10),  # a short run has no time for a long warm-up
    }
    command = ["train", str(files.train), "--dev", str(files.dev), "--test", str(files.test)]
    command += ["--out", str(experiment.runs / run), *experiment.config(family)]
    command += [word for key, value in training.items() for word in ("--set", f"training.{key}={value}")]
    whole = experiment.command(command, f"{name}.{family}")
    evaluation = json.loads((experiment.runs / run / "evaluation.json").read_text())
    events = experiment.events(run)
    headline = evaluation["scores"][evaluation["headline"]]
    validations = [event for event in events if event["event"] == "validated"]
    result = {
        "set": name,
        "family": family,
        "about": SETS[name].about,
        "seconds": seconds,
        "metric": headline["label"],
        "better": headline["better"],
        "test": headline["value"],
        "test_interval": [headline["low"], headline["high"]],
        "test_rows": evaluation["rows"],
        "dev": abs(max(event["score"] for event in validations)),
        "perplexity": evaluation["scores"].get("perplexity", {}).get("value"),
        "updates": events[-1]["update"],
        "updates_planned": updates,
        "epochs": validations[-1]["epoch"],
        "training_seconds": round(events[-1]["seconds"], 1),
        "whole_seconds": round(whole, 1),
        **{key: measured[key] for key in ("parameters", "rows", "target_tokens", "target_vocabulary")},
        **describe_machine(),
    }
    experiment.save(f"{name}.{family}", result)
    print(f"{name}, {family}: {result['metric']} {result['test']:.2f}, {result['parameters']:,} parameters", flush=True)


def write_page(results: Sequence[Result]) -> str:
    by_run = {(result["set"], result["family"]): result for result in results}
    families = sorted({result["family"] for result in results})
    rows: list[list[str]] = []
    ranks: dict[str, list[int]] = {family: [] for family in families}
    for name in (name for name in SETS if any(result["set"] == name for result in results)):
        order = rank([by_run[name, family] for family in families if (name, family) in by_run])
        scores = [result["test"] for result in order]
        for result in order:
            ranks[result["family"]].append(1 + scores.index(result["test"]))  # equals share a rank
        first = order[0]
        rows.append(
            [
                f"{name}: {first['about']}",
                *(f"{first[key]:,}" for key in ("rows", "target_tokens", "target_vocabulary")),
                first["metric"],
                *(show_score(by_run.get((name, family)), scores[0]) for family in families),
                choose_family(first),
            ]
        )
    rows.append(["**mean rank**", "", "", "", "", *(f"{mean(ranks[family]):.2f}" for family in families), ""])
    links = [f"[{family}]({family}.toml)" for family in families]
    details = [
        [
            result["set"],
            result["family"],
            f"{result['test']:.2f}",
            f"{result['test_interval'][0]:.2f} to {result['test_interval'][1]:.2f}",
            f"{result['dev']:.2f}",
            f"{result['parameters']:,}",
            f"{result['updates']:,} of {result['updates_planned']:,}",
            str(result["epochs"]),
            f"{result['training_seconds'] / 60:.1f}",
            f"{result['whole_seconds'] / 60:.1f}",
        ]
        for result in results
    ]
    seconds = sorted({result["seconds"] for result in results})
    command = f"python experiments/auto/run.py --data FOLDER --seconds {seconds[-1]:g}"
    return page(
        "Which model should be the default?",
        "Families of models on data of different kinds, one thread, the same time for each. Everything else is what "
        "the defaults choose from the data: tokenisers, batch size, metric. The learning rate falls until the end of "
        "the time, as estimated from the speed measured before. The rules of `auto` (`src/dragoman/recipe/auto.py`) "
        "are based on these tables; they know sizes and lengths, never the name of a data set.",
        f"Test scores on at most {TEST_ROWS:,} rows, the best family in bold; "
        f"{' or '.join(f'{value:g}' for value in seconds)} seconds of training for each run.",
        table(["data", "rows", "target tokens", "target vocabulary", "metric", *links, "`auto` takes"], rows),
        "A recurrent model is ahead where the vocabulary is small (letters, phones, actions) and there are fewer than "
        "a few hundred thousand tokens; a Transformer where the vocabulary is large (words, subwords), and also with "
        "many tokens of letters. The seconds are far fewer than a default training takes: they show which model learns "
        "more in the same time, not which is better at the end. There, after 30 to 45 minutes, the Transformer is "
        "first on [captions](../multi30k/README.md) as well.",
        table(
            (
                *("data", "family", "test", "95 % interval", "best dev, greedy", "parameters", "updates", "epochs"),
                *("minutes of training", "minutes, the whole command"),
            ),
            details,
        ),
        f"Made on {max(result['date'] for result in results)} with `{command}`; {made_with(results[0])}.",
    )


def choose_family(result: Result) -> str:
    """Return the family that today's rules choose for data of this size."""
    from dragoman.recipe.auto import Shape, wants_transformer

    tokens, vocabulary = result["target_tokens"], result["target_vocabulary"]
    shape = Shape(result["rows"], tokens, tokens, vocabulary, vocabulary, longest=1)
    return "transformer" if wants_transformer(shape) else "recurrent"


def rank(results: Sequence[Result]) -> list[Result]:
    """Sort results, the best first."""
    return sorted(results, key=lambda result: -result["test"] if result["better"] == "higher" else result["test"])


def show_score(result: Result | None, best: float) -> str:
    if result is None:
        return "–"
    return f"**{result['test']:.2f}**" if result["test"] == best else f"{result['test']:.2f}"


if __name__ == "__main__":
    extra: dict[str, dict[str, Any]] = {
        "--seconds": {"type": float, "default": 80.0, "help": "of training and validating, for each run"},
        "--families": {"nargs": "*", "choices": FAMILIES, "default": FAMILIES, "metavar": "NAME"},
    }
    start(main, __file__, __doc__, parallel=1, extra=extra)
