"""Multi30k, the official lower-cased tokenised text with one subword vocabulary for both languages.

    python experiments/multi30k/run.py --data FOLDER [--only tiny-en-de …] [--threads 2]
    python experiments/multi30k/run.py --table

FOLDER has SET.lc.norm.tok.LANGUAGE. The settings of a run are in NAME.toml beside this file. A run that was stopped
resumes. Where there is a NAME-settled.toml, a second stage starts from the run's weights with these settings; BLEU on
dev decides which of the two is tested, and the time of both counts.
"""

from __future__ import annotations

import json
import statistics
import sys
import tomllib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from datasets import lines, paired, write
from runner import Experiment, Result, describe_machine, start
from tables import made_with, page, table

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


def main(experiment: Experiment) -> None:
    def run(name: str, data: Path) -> object:
        return experiment.save(name, train_and_test(experiment, name, data))

    results = experiment.collect(RUNS, lambda: experiment.data, run)
    experiment.publish(write_page(results), is_complete=len(results) == len(RUNS))


def train_and_test(experiment: Experiment, name: str, data: Path) -> Result:
    source, target = name.split("-")[-2:]
    runs, threads, settings = experiment.runs, experiment.threads, experiment.options.set
    train, dev = (
        write(
            paired(data / f"{split}.lc.norm.tok.{source}", data / f"{split}.lc.norm.tok.{target}"),
            runs / "data" / f"{split}.{source}-{target}.tsv",
        )
        for split in ("train", "val")
    )
    parameters = count_parameters(train, dev, experiment.folder / f"{name}.toml", settings)
    print(f"{name}: {parameters:,} parameters", flush=True)
    if parameters > MOST_PARAMETERS.get(name, parameters):
        raise SystemExit(f"{name}: {parameters:,} parameters are more than {MOST_PARAMETERS[name]:,}; make it smaller")
    command = ["train", str(train), "--dev", str(dev), "--set", f"training.threads={threads}"]
    command += [word for setting in settings for word in ("--set", setting)]
    stages = [name]
    seconds = experiment.command([*command, *experiment.config(name), "--out", str(runs / name)], name, threads=threads)
    second = f"{name}-settled"
    if (experiment.folder / f"{second}.toml").exists():
        stages.append(second)
        first = str(runs / name)
        init = ["--init-encoder", first, "--init-decoder", first, "--set", "init.tokenizers=reuse"]
        seconds += experiment.command(
            [*command, *experiment.config(second), "--out", str(runs / second), *init], name, threads=threads
        )
    summaries = {stage: summarize_stage(experiment, stage) for stage in stages}
    chosen = max(stages, key=lambda stage: summaries[stage]["dev"])
    print("\n".join(f"{stage}: BLEU on dev {summaries[stage]['dev']:.2f}" for stage in stages), flush=True)
    tests: dict[str, Any] = {}
    for test in TESTS:
        inputs, references = (data / f"{test}.lc.norm.tok.{language}" for language in (source, target))
        outputs = runs / f"{name}.{test}.{target}"
        predicting = experiment.command(
            ["predict", str(runs / chosen), str(inputs)], name, threads=threads, output=outputs
        )
        tests[test] = bleu(outputs, references) | {"seconds": round(predicting, 1)}
        length = tests[test]["reference_length"]
        if length != REFERENCE_LENGTH.get((test, target), length):
            expected = REFERENCE_LENGTH[test, target]
            raise SystemExit(f"{test}: {length} words in the references, not {expected}; is it another text?")
        print(f"{name} {test}: BLEU {tests[test]['bleu']:.2f}", flush=True)
    speeds = [event["tokens_per_second"] for event in experiment.events(name) if event["event"] == "stepped"]
    return {
        "name": name,
        "tests": tests,
        "parameters": parameters,
        "chosen": chosen,
        "stages": summaries,
        "updates": sum(stage["updates"] for stage in summaries.values()),
        "epochs": sum(stage["epochs"] for stage in summaries.values()),
        "tokens_per_second": round(statistics.median(speeds or [0])),
        "training_seconds": round(sum(stage["seconds"] for stage in summaries.values()), 1),
        "whole_seconds": round(seconds, 1),
        "threads": threads,
        "settings": {stage: tomllib.loads((experiment.folder / f"{stage}.toml").read_text()) for stage in stages},
        "set": settings,
        **describe_machine(),
    }


def summarize_stage(experiment: Experiment, stage: str) -> dict[str, Any]:
    events = experiment.events(stage)
    validations = [event for event in events if event["event"] == "validated"]
    evaluation = json.loads((experiment.runs / stage / "evaluation.json").read_text())
    return {
        "dev": evaluation["scores"]["bleu"]["value"],  # of the final weights
        "updates": events[-1]["update"],
        "epochs": validations[-1]["epoch"],
        "ended": events[-1]["reason"],
        "best_dev": max(event["score"] for event in validations),
        "validations": len(validations),
        "seconds": round(events[-1]["seconds"], 1),
    }


def count_parameters(train: Path, dev: Path, config: Path, settings: list[str]) -> int:
    """Return the size of the model before the first update: a model that is too large need not be trained."""
    from dragoman.training.plan import plan

    return plan(train, dev, config=config, settings=settings).system.model.parameters_count


def bleu(outputs: Path, references: Path) -> dict[str, Any]:
    """Return BLEU-4 (Papineni et al. 2002) of tokens separated by spaces: the text is already tokenised."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize="none", force=True)
    score = metric.corpus_score(lines(outputs), [lines(references)])
    return {
        "bleu": round(score.score, 2),
        "precisions": [round(value, 1) for value in score.precisions],
        "brevity_penalty": round(score.bp, 3),
        "reference_length": score.ref_len,
        "signature": str(metric.get_signature()),
    }


def write_page(results: dict[str, Result]) -> str:
    header = (
        *("run and its settings", "parameters", "test 2016", "test 2017", "mscoco 2017", "published"),
        *("updates", "epochs", "tokens/s", "minutes", "threads"),
    )
    rows = [
        [
            ", then ".join(f"[{stage}]({stage}.toml)" for stage in result["stages"]),
            f"{result['parameters']:,}",
            *(f"{result['tests'][test]['bleu']:.2f}" for test in TESTS),
            PUBLISHED[name],
            f"{result['updates']:,}",
            str(result["epochs"]),
            f"{result['tokens_per_second']:,}",
            f"{result['training_seconds'] / 60:.1f}",
            str(result["threads"]),
        ]
        for name, result in results.items()
    ]
    stages = [describe_stages(name, result) for name, result in results.items() if len(result["stages"]) > 1]
    return page(
        "Multi30k",
        "Image captions, 29,000 training pairs: the official lower-cased, normalised and tokenised text, subwords "
        "learnt from both languages together. BLEU is that of the published figures: BLEU-4 of the tokens separated by "
        "spaces, subwords joined, nothing else done to either side (sacrebleu's tokenize=none, case unchanged).",
        table(header, rows),
        "Minutes are those of training with its validations (greedy on dev); tokens/s are target tokens. The published "
        "de-en figures were measured with another tokeniser and a word vocabulary; they show what such a model is "
        "expected to reach, not more.",
        "N-gram precisions (1 to 4), brevity penalty:",
        "\n".join(
            describe_bleu(name, test, result["tests"][test]) for name, result in results.items() for test in TESTS
        ),
        "Runs in two stages:" if stages else "",
        "\n".join(stages),
        "Made with `python experiments/multi30k/run.py --data FOLDER` (one run: `--only NAME`):",
        "\n".join(
            f"- {name} on {result['date']}: {made_with(result)}"
            + (f", with {' '.join(result['set'])} over the file" if result["set"] else "")
            for name, result in results.items()
        ),
    )


def describe_bleu(name: str, test: str, score: dict[str, Any]) -> str:
    precisions = "/".join(f"{value:.1f}" for value in score["precisions"])
    return (
        f"- {name}, {test}: {precisions}, brevity penalty {score['brevity_penalty']:.3f}, "
        f"{score['reference_length']:,} words in the references"
    )


def describe_stages(name: str, result: Result) -> str:
    scores = ", ".join(
        f"{summary['dev']:.2f} of {stage} ({summary['seconds'] / 60:.1f} minutes)"
        for stage, summary in result["stages"].items()
    )
    return f"- {name}: BLEU on dev, {scores}; {result['chosen']} is tested"


if __name__ == "__main__":
    start(main, __file__, __doc__)
