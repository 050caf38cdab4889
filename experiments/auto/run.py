"""Which family of models should the defaults be? Every family on data of different kinds, each with the same time.

    python experiments/auto/run.py --data FOLDER [--seconds 90] [--parallel 1] [--only g2p scan …] [--families …]
    python experiments/auto/run.py --table

FOLDER holds the folders of the data sets (see SETS). A family is a settings file beside this script: put one more
there, and it is tried too. Writes results/SET.FAMILY.json and the tables in README.md. A result made with the same
seconds is not made again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import dragoman, events, machine, made_with, program, write_result
from datasets import columns, inflections, paired, write

HERE = Path(__file__).resolve().parent
FAMILIES = sorted(path.stem for path in HERE.glob("*.toml"))
DEV_ROWS, TEST_ROWS = 400, 1000  # spread evenly over the files
SHARE = 0.8  # of the seconds, for updates; the rest is for validations
VALIDATIONS = 5
NO_END = 1_000_000  # epochs: the updates are what ends a run
Rows = list[tuple[str, str]]


@dataclass(frozen=True)
class Set:
    about: str
    read: Callable[[Path, str], Rows]  # data folder, side ("train", "dev", "test")
    train_rows: int | None = None  # of more, so many spread evenly are taken


def _scan(data: Path, side: str) -> Rows:
    """There is no dev file: every tenth training row is dev."""
    rows = columns(data / "scan" / f"simple_{'test' if side == 'test' else 'train'}.tsv")
    chosen = {"train": [row for i, row in enumerate(rows) if i % 10], "dev": rows[::10], "test": rows}
    return chosen[side]


def _multi30k(data: Path, side: str) -> Rows:
    name = {"train": "train", "dev": "val", "test": "test_2016_flickr"}[side]
    return paired(*(data / "multi30k" / "tok" / f"{name}.lc.norm.tok.{language}" for language in ("en", "de")))


def _level(side: str) -> str:
    return "train-high" if side == "train" else side


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
USUAL = ["g2p", "inflection", "transliteration", "spelling", "scan", "captions"]  # six kinds, in 40 minutes on one core


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--data", type=Path)
    arguments.add_argument("--runs", type=Path, default=Path("runs/auto"))
    arguments.add_argument("--results", type=Path, default=HERE / "results")
    arguments.add_argument("--seconds", type=float, default=80.0, help="of training and validating, for each run")
    arguments.add_argument("--only", nargs="*", choices=list(SETS), default=USUAL, metavar="SET", help=" ".join(SETS))
    arguments.add_argument("--families", nargs="*", choices=FAMILIES, default=FAMILIES, metavar="NAME")
    arguments.add_argument("--parallel", type=int, default=1, help="runs side by side, one thread each")
    arguments.add_argument("--table", action="store_true", help="only write README.md from the results")
    asked = arguments.parse_args()
    if not asked.table:
        if asked.data is None:
            arguments.error("--data FOLDER is needed, unless only --table is asked for")
        pairs = [(name, family) for name in asked.only for family in asked.families]
        for name in asked.only:
            prepare(name, asked.data, asked.runs)
        with ThreadPoolExecutor(asked.parallel) as pool:
            list(pool.map(lambda pair: try_out(*pair, asked.runs, asked.results, asked.seconds), pairs))
    page = tables(asked.results)
    print(page)
    if asked.results == HERE / "results":
        (HERE / "README.md").write_text(page)


def prepare(name: str, data: Path, runs: Path) -> None:
    for side, most in (("train", SETS[name].train_rows), ("dev", DEV_ROWS), ("test", TEST_ROWS)):
        write(spread(SETS[name].read(data, side), most), runs / "data" / f"{name}.{side}.tsv")


def spread(rows: Rows, most: int | None) -> Rows:
    """``most`` rows at even distances, in order; all of them if there are no more."""
    if most is None or len(rows) <= most:
        return rows
    return [rows[index * len(rows) // most] for index in range(most)]


def try_out(name: str, family: str, runs: Path, results: Path, seconds: float) -> None:
    path = results / f"{name}.{family}.json"
    if path.exists() and json.loads(path.read_text())["seconds"] == seconds:
        return
    train, dev, test = (runs / "data" / f"{name}.{side}.tsv" for side in ("train", "dev", "test"))
    folder, log, config = runs / f"{name}.{family}.{seconds:g}", runs / f"{name}.{family}.log", HERE / f"{family}.toml"
    probe = [sys.executable, str(HERE / "probe.py"), str(train), str(dev), str(config), "1"]
    found = json.loads(subprocess.run(probe, check=True, capture_output=True, text=True).stdout)
    updates = max(VALIDATIONS, int(SHARE * seconds / found["seconds_an_update"]))
    training = {
        "max_updates": updates,
        "max_epochs": NO_END,
        "max_time": seconds,
        "validate_every": max(1, updates // VALIDATIONS),
        "patience": VALIDATIONS + 1,
        "threads": 1,
        "optim.warmup": min(found["warmup"], updates // 10),  # a short run has no time for a long one
    }
    command = [
        "train",
        str(train),
        "--dev",
        str(dev),
        "--test",
        str(test),
        "--out",
        str(folder),
        "--config",
        str(config),
    ]
    command += [word for key, value in training.items() for word in ("--set", f"training.{key}={value}")]
    whole = dragoman(command, log, threads=1)
    evaluation = json.loads((folder / "evaluation.json").read_text())
    reported = events(folder)
    headline = evaluation["scores"][evaluation["headline"]]
    validated = [event for event in reported if event["event"] == "validated"]
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
        "dev": abs(max(event["score"] for event in validated)),
        "perplexity": evaluation["scores"].get("perplexity", {}).get("value"),
        "updates": reported[-1]["update"],
        "updates_planned": updates,
        "epochs": validated[-1]["epoch"],
        "training_seconds": round(reported[-1]["seconds"], 1),
        "whole_seconds": round(whole, 1),
        **{key: found[key] for key in ("parameters", "rows", "target_tokens", "target_vocabulary")},
        **machine(),
    }
    write_result(path, result)
    print(f"{name}, {family}: {result['metric']} {result['test']:.2f}, {result['parameters']:,} parameters", flush=True)


def tables(results: Path) -> str:
    found = [json.loads(path.read_text()) for path in sorted(results.glob("*.json"))]
    if not found:
        raise SystemExit("there is no result yet: run without --table first")
    by = {(one["set"], one["family"]): one for one in found}
    names = [name for name in SETS if any(one["set"] == name for one in found)]
    families = sorted({one["family"] for one in found})
    rows, ranks = [], {family: [] for family in families}
    for name in names:
        ones = [by[name, family] for family in families if (name, family) in by]
        order = ranked(ones)
        scores = [one["test"] for one in order]
        for one in order:
            ranks[one["family"]].append(1 + scores.index(one["test"]))  # equals share a place
        cells = [cell(by.get((name, family)), order[0]) for family in families]
        one = ones[0]
        rows.append(
            f"| {name}: {one['about']} | {one['rows']:,} | {one['target_tokens']:,} | {one['target_vocabulary']:,} | {one['metric']} "
            f"| {' | '.join(cells)} | {taken(one)} |"
        )
    means = [f"{sum(ranks[family]) / len(ranks[family]):.2f}" for family in families]
    details = [
        f"| {one['set']} | {one['family']} | {one['test']:.2f} | {one['test_interval'][0]:.2f} to {one['test_interval'][1]:.2f} "
        f"| {one['dev']:.2f} | {one['parameters']:,} | {one['updates']:,} of {one['updates_planned']:,} | {one['epochs']} "
        f"| {one['training_seconds'] / 60:.1f} | {one['whole_seconds'] / 60:.1f} |"
        for one in found
    ]
    seconds = sorted({one["seconds"] for one in found})
    return "\n".join(
        [
            "# Which model should the defaults be?",
            "",
            "Families of models on data of different kinds, one thread, the same time for each. All else is what the defaults choose from the data:",
            "tokenisers, size of a batch, metric. The rate falls to the end of the time, as far as the speed measured beforehand tells. What",
            "`auto` does (`src/dragoman/auto.py`) rests on these tables; it knows sizes and lengths, never the name of a data set.",
            "",
            f"Test scores on at most {TEST_ROWS:,} rows, the best family in bold; {' or '.join(f'{one:g}' for one in seconds)} seconds of training a run.",
            "",
            f"| data | rows | target tokens | kinds of them | metric | {' | '.join(f'[{family}]({family}.toml)' for family in families)} | `auto` takes |",
            "|---|---|---|---|---|" + "---|" * (len(families) + 1),
            *rows,
            f"| **mean place** | | | | | {' | '.join(means)} | |",
            "",
            "A recurrent model is ahead where the vocabulary is small (letters, phones, actions) and there are fewer than some hundred thousand",
            "tokens; a Transformer where it is large (words, pieces of words), and with many tokens of letters too. The seconds are far fewer",
            "than a training by default takes: what they tell is who learns more in the same time, not who is better at the end. There,",
            "after 30 to 45 minutes, [captions](../multi30k/README.md) put the Transformer first as well.",
            "",
            "| data | family | test | 95 % interval | best dev, greedy | parameters | updates | epochs | minutes of training | minutes, the whole command |",
            "|---|---|---|---|---|---|---|---|---|---|",
            *details,
            "",
            f"Made on {max(one['date'] for one in found)} with `python experiments/auto/run.py --data FOLDER --seconds {seconds[-1]:g}`; {made_with(found[0])}.",
            "",
        ]
    )


def taken(one: dict[str, Any]) -> str:
    """What the rules of today take for data of this size."""
    from dragoman.auto import Shape, wants_transformer

    tokens, vocabulary = one["target_tokens"], one["target_vocabulary"]
    shape = Shape(one["rows"], tokens, tokens, vocabulary, vocabulary, longest=1)
    return "transformer" if wants_transformer(shape) else "recurrent"


def ranked(ones: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The best first."""
    return sorted(ones, key=lambda one: -one["test"] if one["better"] == "higher" else one["test"])


def cell(one: dict[str, Any] | None, best: dict[str, Any]) -> str:
    if one is None:
        return "–"
    return f"**{one['test']:.2f}**" if one["test"] == best["test"] else f"{one['test']:.2f}"


if __name__ == "__main__":
    program(main)
