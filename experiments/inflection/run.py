"""Inflection: a lemma and tags to a form, three languages of CoNLL-SIGMORPHON 2017 task 1, 10,000 training rows each.

    python experiments/inflection/run.py --data FOLDER [--parallel 2] [--only german …] [--set KEY=VALUE …]

FOLDER has LANGUAGE.train-high.tsv, LANGUAGE.dev.tsv and LANGUAGE.test.tsv: lemma, form, tags. The source is one line of
symbols separated by spaces, first the tags, then the letters of the lemma; the target is the form.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from datasets import SPACE, inflections
from runner import Experiment, start
from tables import bold, effort, interval, mean, origin, page, table

# Test accuracy of the organisers' affix rules at this level (their baseline.py).
RULES = {"german": 82.4, "finnish": 78.2, "turkish": 72.6}


def main(experiment: Experiment) -> None:
    def run(name: str, data: Path) -> object:
        levels = {"train": "train-high", "dev": "dev", "test": "test"}
        rows = {split: inflections(data / f"{name}.{level}.tsv") for split, level in levels.items()}
        return experiment.train(name, experiment.write_splits(rows, name))

    results = experiment.collect(tuple(RULES), lambda: experiment.data, run)
    first = next(iter(results.values()))
    options = " ".join(first["options"])
    about = (
        "The data of CoNLL-SIGMORPHON 2017 task 1 at its largest level: 10,000 training rows for each language, a "
        "lemma and tags to a form. One model for each language, `dragoman train` with "
        f"{f'`{options}`' if options else 'the defaults alone'}. The source is a line of symbols, tags first and then "
        f"letters (`<V> <IND> <PST> <2> <PL> f e s t …`, a space inside a lemma as {SPACE}); the target is the form. "
        "Accuracy is the share of forms with every letter right. The rules are the organisers' baseline, run on the "
        "same files. With the defaults alone, 14 epochs in ten minutes, accuracy was 82.7 (German), 86.0 (Finnish) and "
        "93.3 (Turkish), 87.3 on average."
    )
    rows = [
        [
            name,
            f"{result['scores']['exact']:.2f}",
            interval(result, "exact"),
            f"{RULES[name]:.1f}",
            f"{result['scores']['cer']:.2f}",
            *effort(result),
            str(result["threads"]),
        ]
        for name, result in results.items()
    ]
    accuracy = mean(result["scores"]["exact"] for result in results.values())
    rules = mean(RULES[name] for name in results)
    rows.append(["**mean**", bold(accuracy), "", bold(rules), "", "", "", ""])
    header = (
        "language",
        "test accuracy",
        "95 % interval",
        "rules",
        "character errors, %",
        "updates",
        "minutes",
        "threads",
    )
    command = f"--parallel {experiment.parallel}{' ' * bool(options)}{options}"
    text = page(
        "Inflection in three languages",
        about,
        table(header, rows),
        "Minutes are for the whole command (reading, training, evaluating), with other runs at the same time.",
        origin(first, "inflection", command),
    )
    experiment.publish(text, is_complete=len(results) == len(RULES))


if __name__ == "__main__":
    start(main, __file__, __doc__, parallel=2)
