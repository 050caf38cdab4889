"""Questions about stories: the twenty bAbI tasks with 900 training questions each, question and story as two sources.

    python experiments/babi/run.py --data FOLDER

FOLDER has qaN_{train,valid,test}.txt. One model learns all tasks together and is tested on each.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from datasets import stories, write
from runner import Experiment, Files, start
from tables import INTERVALS, origin, page, runs_table, table

HEADER = ("question", "story", "answer")
TASKS = range(1, 21)
# Test accuracy with 1,000 questions and one model for each task: the LSTM of Weston et al. 2015, and the recurrent
# example of Keras.
WESTON = [50, 20, 20, 61, 70, 48, 49, 45, 64, 44, 72, 74, 94, 27, 21, 23, 51, 52, 8, 91]
KERAS = [
    52.1, 37.0, 20.5, 62.9, 61.9, 50.7, 78.9, 77.2, 64.0, 47.7,
    74.9, 76.4, 94.4, 34.8, 32.4, 50.6, 49.1, 90.8, 9.0, 90.7,
]  # fmt: skip


def main(experiment: Experiment) -> None:
    def run(name: str, files: Files) -> object:
        if name == "all":
            return experiment.train(name, files, experiment.config("two-sources"))
        task = int(name.removeprefix("task-"))
        scores, _ = experiment.evaluate("all", write_task(experiment, task), name)
        whole = experiment.load("all")
        origin = {key: whole[key] for key in ("date", "dragoman", "torch", "python", "cpu", "cores")}
        return experiment.save(name, {"task": task, "scores": scores, **origin})

    names = ("all", *(f"task-{task}" for task in TASKS))
    results = experiment.collect(names, lambda: write_all(experiment), run)
    whole = results.pop("all")
    rows, above = [], 0
    for result in results.values():
        exact, index = result["scores"]["exact"]["value"], result["task"] - 1
        is_above = exact > max(WESTON[index], KERAS[index])
        above += is_above
        score = f"**{exact:.1f}**" if is_above else f"{exact:.1f}"
        rows.append((str(result["task"]), score, str(WESTON[index]), str(KERAS[index])))
    about = (
        "Question and story are two sources with one state for each sentence: the sum of its words weighted by "
        "position (Sukhbaatar et al. 2015), the latest sentence first. A joint encoder reads them together, and the "
        "decoder attends to all of them. One model learns the 900 questions of each of the twenty tasks together "
        "([settings](two-sources.toml)); dev has the other 100 of each. The published figures are of one model for "
        "each task, with 1,000 questions: the LSTM of Weston et al. 2015 and the recurrent example of Keras."
    )
    header = ("task", "exact match on its 1,000 test questions, %", "Weston et al.", "Keras")
    text = page(
        "bAbI, 1,000 questions in each task",
        about,
        runs_table({"all tasks": whole}, ("exact",)),
        INTERVALS,
        f"Above the better of the two published figures in **{above} of {len(TASKS)}** tasks (bold):",
        table(header, rows),
        origin(whole, "babi"),
    )
    experiment.publish(text, is_complete=len(rows) == len(TASKS))


def read(experiment: Experiment, task: int, split: str) -> list[tuple[str, str, str]]:
    rows = stories(experiment.data / f"qa{task}_{split}.txt")
    return [(question, story, answer) for story, question, answer in rows]


def write_task(experiment: Experiment, task: int) -> Path:
    return write([HEADER, *read(experiment, task, "test")], experiment.runs / "data" / f"{task}.test.tsv")


def write_all(experiment: Experiment) -> Files:
    """Write the questions of all tasks as one table for each split."""
    splits = {"train": "train", "dev": "valid", "test": "test"}
    return experiment.write_splits(
        {
            split: [HEADER, *(row for task in TASKS for row in read(experiment, task, name))]
            for split, name in splits.items()
        }
    )


if __name__ == "__main__":
    start(main, __file__, __doc__)
