"""Multi30k, the official lower-cased tokenised text with one subword vocabulary for both languages.

    python experiments/multi30k/run.py --data FOLDER [--only tiny-en-de …] [--threads 2]
    python experiments/multi30k/run.py --table

FOLDER holds SET.lc.norm.tok.LANGUAGE. The settings of a run are in NAME.toml beside this file; its result goes to
results/NAME.json, and --table writes README.md anew from the results that are there. Stopped and started again, a run
goes on where it was. Where there is a NAME-settled.toml, training goes on from the run's weights with these settings;
which of the two is measured is decided by BLEU on dev, and the time of both counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tomllib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import dragoman, events, machine, made_with, program, write_result
from datasets import lines, paired, write

HERE = Path(__file__).resolve().parent
RUNS = ("tiny-en-de", "rnn-de-en", "transformer-de-en", "conv-de-en")
TESTS = ("test_2016_flickr", "test_2017_flickr", "test_2017_mscoco")
REFERENCE_LENGTH = {("test_2016_flickr", "de"): 12103}  # words, as the published BLEU reports them
MOST_PARAMETERS = {"tiny-en-de": 2_610_000}
PUBLISHED = {
    "tiny-en-de": "41.02 / 33.36 / 29.88 (Wu et al. 2021, 2.6 M parameters, beam 5)",
    "rnn-de-en": "28.30 (bentrevett/pytorch-seq2seq, GRU + attention, greedy)",
    "transformer-de-en": "36.52 (bentrevett/pytorch-seq2seq, 3+3 layers, greedy)",
    "conv-de-en": "34.14 (bentrevett/pytorch-seq2seq, greedy)",
}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--data", type=Path, help="folder of the tokenised files")
    arguments.add_argument("--runs", type=Path, default=Path("runs/multi30k"))
    arguments.add_argument(
        "--results", type=Path, default=HERE / "results", help="elsewhere while settings are tried out"
    )
    arguments.add_argument("--only", nargs="*", choices=RUNS, default=list(RUNS), metavar="NAME")
    arguments.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    arguments.add_argument(
        "--set", nargs="*", default=[], metavar="KEY=VALUE", help="over the settings file, to try out"
    )
    arguments.add_argument("--table", action="store_true", help="only write README.md from the results")
    asked = arguments.parse_args()
    if not asked.table:
        if asked.data is None:
            arguments.error("--data FOLDER is needed, unless only --table is asked for")
        for name in asked.only:
            if not (asked.results / f"{name}.json").exists():
                result = train_and_measure(name, asked.data, asked.runs, asked.threads, asked.set)
                write_result(asked.results / f"{name}.json", result)
    if asked.results == HERE / "results":
        write_table()


def train_and_measure(name: str, data: Path, runs: Path, threads: int, settings: list[str]) -> dict[str, Any]:
    source, target = name.split("-")[-2:]
    folder, log = runs / name, runs / f"{name}.log"
    train, dev = (
        write(
            paired(data / f"{side}.lc.norm.tok.{source}", data / f"{side}.lc.norm.tok.{target}"),
            runs / "data" / f"{side}.{source}-{target}.tsv",
        )
        for side in ("train", "val")
    )
    parameters = count_parameters(train, dev, HERE / f"{name}.toml", settings)
    print(f"{name}: {parameters:,} parameters", flush=True)
    if parameters > MOST_PARAMETERS.get(name, parameters):
        raise SystemExit(f"{name}: {parameters:,} parameters are more than {MOST_PARAMETERS[name]:,}; make it smaller")
    stages = [name]
    common = ["train", str(train), "--dev", str(dev), "--set", f"training.threads={threads}"]
    for setting in settings:
        common += ["--set", setting]
    whole = dragoman([*common, "--config", str(HERE / f"{name}.toml"), "--out", str(folder)], log, threads)
    settled = HERE / f"{name}-settled.toml"
    if settled.exists():
        stages.append(settled.stem)
        start = ["--init-encoder", str(folder), "--init-decoder", str(folder), "--set", "init.tokenizers=reuse"]
        second = [*common, "--config", str(settled), "--out", str(runs / settled.stem), *start]
        whole += dragoman(second, log, threads)
    told = {stage: stage_result(runs / stage) for stage in stages}
    chosen = max(stages, key=lambda stage: told[stage]["dev"])
    print("\n".join(f"{stage}: BLEU on dev {told[stage]['dev']:.2f}" for stage in stages), flush=True)
    tests: dict[str, Any] = {}
    for test in TESTS:
        outputs = runs / f"{name}.{test}.{target}"
        given = data / f"{test}.lc.norm.tok.{source}"
        seconds = dragoman(["predict", str(runs / chosen), str(given)], log, threads, outputs)
        tests[test] = bleu(outputs, data / f"{test}.lc.norm.tok.{target}") | {"seconds": round(seconds, 1)}
        expected = REFERENCE_LENGTH.get((test, target), tests[test]["reference_length"])
        if tests[test]["reference_length"] != expected:
            raise SystemExit(
                f"{test}: {tests[test]['reference_length']} words in the references, not {expected}: other text?"
            )
        print(f"{name} {test}: BLEU {tests[test]['bleu']:.2f}", flush=True)
    speeds = [event["tokens_per_second"] for event in events(folder) if event["event"] == "stepped"]
    return {
        "name": name,
        "tests": tests,
        "parameters": parameters,
        "chosen": chosen,
        "stages": told,
        "updates": sum(stage["updates"] for stage in told.values()),
        "epochs": sum(stage["epochs"] for stage in told.values()),
        "tokens_per_second": round(statistics.median(speeds or [0])),
        "training_seconds": round(sum(stage["seconds"] for stage in told.values()), 1),
        "whole_seconds": round(whole, 1),
        "threads": threads,
        "settings": {stage: tomllib.loads((HERE / f"{stage}.toml").read_text()) for stage in stages},
        "set": settings,
        **machine(),
    }


def stage_result(folder: Path) -> dict[str, Any]:
    reported = events(folder)
    stopped = reported[-1]
    validated = [event for event in reported if event["event"] == "validated"]
    return {
        "dev": json.loads((folder / "evaluation.json").read_text())["scores"]["bleu"]["value"],  # of the final weights
        "updates": stopped["update"],
        "epochs": validated[-1]["epoch"],
        "ended": stopped["reason"],
        "best_dev": max(event["score"] for event in validated),
        "validations": len(validated),
        "seconds": round(stopped["seconds"], 1),
    }


def count_parameters(train: Path, dev: Path, config: Path, settings: list[str]) -> int:
    """Known before the first update: a run that is too large need not be trained."""
    from dragoman.planning import plan

    return plan(train, dev, config=config, settings=settings).system.model.parameters_count


def bleu(outputs: Path, references: Path) -> dict[str, Any]:
    """BLEU-4 (Papineni et al. 2002) of tokens between spaces, as they stand: the text is tokenised and lower-cased."""
    from sacrebleu.metrics.bleu import BLEU

    made, wanted = lines(outputs), lines(references)
    metric = BLEU(tokenize="none", force=True)
    score = metric.corpus_score(made, [wanted])
    return {
        "bleu": round(score.score, 2),
        "precisions": [round(value, 1) for value in score.precisions],
        "brevity_penalty": round(score.bp, 3),
        "reference_length": score.ref_len,
        "signature": str(metric.get_signature()),
    }


def write_table() -> None:
    paths = {name: HERE / "results" / f"{name}.json" for name in RUNS}
    found = [json.loads(path.read_text()) for path in paths.values() if path.exists()]
    rows = [
        f"| {', then '.join(f'[{stage}]({stage}.toml)' for stage in r.get('stages', [r['name']]))} | {r['parameters']:,} | "
        + " | ".join(f"{r['tests'][test]['bleu']:.2f}" for test in TESTS)
        + f" | {PUBLISHED[r['name']]} | {r['updates']:,} | {r['epochs']} | {r['tokens_per_second']:,} "
        f"| {r['training_seconds'] / 60:.1f} | {r['threads']} |"
        for r in found
    ]
    details = [
        f"- {r['name']}, {test}: {'/'.join(f'{value:.1f}' for value in r['tests'][test]['precisions'])}, brevity penalty "
        f"{r['tests'][test]['brevity_penalty']:.3f}, {r['tests'][test]['reference_length']:,} words in the references"
        for r in found
        for test in TESTS
    ]
    stages = [
        f"- {r['name']}: BLEU on dev, "
        + ", ".join(
            f"{told['dev']:.2f} of {stage} ({told['seconds'] / 60:.1f} minutes)" for stage, told in r["stages"].items()
        )
        + f"; measured is {r['chosen']}"
        for r in found
        if len(r.get("stages", [])) > 1
    ]
    made = [
        f"- {r['name']} on {r['date']}: {made_with(r)}"
        + (f", with {' '.join(r['set'])} over the file" if r["set"] else "")
        for r in found
    ]
    missing = [f"- {name}: not run yet" for name, path in paths.items() if not path.exists()]
    page = [
        "# Multi30k",
        "",
        "Image captions, 29,000 training pairs: the official lower-cased, normalised and tokenised text, subwords learnt from both",
        "languages at once. BLEU is that of the published figures: BLEU-4 of the tokens between spaces, subwords joined, nothing else",
        "done to either side (sacrebleu's tokenize=none, case as it is).",
        "",
        "| run and its settings | parameters | test 2016 | test 2017 | mscoco 2017 | published | updates | epochs | tokens/s | minutes | threads |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *rows,
        "",
        "Minutes are those of training with its validations (greedy on dev); tokens/s are target tokens. The published de-en figures were",
        "measured with another tokeniser and a word vocabulary; they say what such a model is expected to reach, not more.",
        "",
        "N-gram precisions (1 to 4), brevity penalty:",
        "",
        *details,
        "",
        *(["Runs in two stages:", "", *stages, ""] if stages else []),
        "Made with `python experiments/multi30k/run.py --data FOLDER` (one run: `--only NAME`), the table with `--table`:",
        "",
        *made,
        *missing,
        "",
    ]
    (HERE / "README.md").write_text("\n".join(page))
    print("\n".join(page))


if __name__ == "__main__":
    program(main)
