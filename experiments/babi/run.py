"""Questions about stories: the twenty bAbI tasks with 900 training questions each, question and story as two sources.

    python experiments/babi/run.py --data FOLDER

FOLDER holds qaN_{train,valid,test}.txt. One model learns all tasks together; it is tested on each. Writes results/*.json
and README.md.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import dragoman, program, run, write_result
from datasets import stories, write
from pages import arguments, options, write_page

HERE = Path(__file__).resolve().parent
HEADER = ("question", "story", "answer")
TASKS = range(1, 21)
# Test accuracy with 1,000 questions a task and a model a task: the LSTM of Weston et al. 2015, the recurrent example of
# Keras.
WESTON = [50, 20, 20, 61, 70, 48, 49, 45, 64, 44, 72, 74, 94, 27, 21, 23, 51, 52, 8, 91]
KERAS = [52.1, 37.0, 20.5, 62.9, 61.9, 50.7, 78.9, 77.2, 64.0, 47.7, 74.9, 76.4, 94.4, 34.8, 32.4, 50.6, 49.1, 90.8, 9.0, 90.7]  # fmt: skip


def main() -> None:
    asked = arguments(__doc__, HERE).parse_args()
    data = asked.runs / "data"
    rows = {(side, task): read(asked.data, task, side) for side in ("train", "valid", "test") for task in TASKS}
    tests = {task: write([HEADER, *rows["test", task]], data / f"{task}.test.tsv") for task in TASKS}
    train, valid, test = (
        write([HEADER, *(row for task in TASKS for row in rows[side, task])], data / f"{side}.tsv")
        for side in ("train", "valid", "test")
    )
    chosen = options(HERE / "two-sources.toml", asked.set)
    whole = run("all", train, valid, test, asked.runs, asked.results, chosen, asked.threads)
    lines, above = [], 0
    for task in TASKS:
        exact = measured(task, tests[task], asked, whole)["scores"]["exact"]["value"]
        weston, keras = WESTON[task - 1], KERAS[task - 1]
        better = exact > max(weston, keras)
        above += better
        lines.append(f"| {task} | {f'**{exact:.1f}**' if better else f'{exact:.1f}'} | {weston} | {keras} |")
    about = [
        "Question and story are two sources, a state a sentence: the sum of its words weighed by place (Sukhbaatar et al. 2015), the latest",
        "sentence first. A joint encoder reads them together, and the decoder attends to all of them. One model learns the 900 questions of",
        "each of the twenty tasks together ([settings](two-sources.toml)), dev are",
        "the 100 others of each. The published figures are of one model a task, with 1,000 questions: the LSTM of Weston et al. 2015 and the recurrent",
        "example of Keras.",
    ]
    after = [
        f"Above the better of the two published figures in **{above} of {len(TASKS)}** tasks (bold):",
        "",
        "| task | exact match on its 1,000 test questions, % | Weston et al. | Keras |",
        "|---|---|---|---|",
        *lines,
    ]
    write_page(asked, HERE, "bAbI, 1,000 questions a task", about, {"all tasks": whole}, ("exact",), after=after)


def read(folder: Path, task: int, side: str) -> list[tuple[str, str, str]]:
    return [(question, story, answer) for story, question, answer in stories(folder / f"qa{task}_{side}.txt")]


def measured(task: int, test: Path, asked: Any, whole: dict[str, Any]) -> dict[str, Any]:
    """The scores of the run on one task, kept beside the others."""
    place = asked.results / f"task-{task}.json"
    if not place.exists():
        said = asked.runs / f"task-{task}.json"
        dragoman(["evaluate", str(asked.runs / "all"), str(test), "--json"], asked.runs / "evaluate.log", 1, said)
        scores = json.loads(said.read_text())["scores"]
        kept = ("date", "dragoman", "torch", "python", "cpu", "cores")
        write_result(place, {"task": task, "scores": scores, **{key: whole[key] for key in kept}})
    return json.loads(place.read_text())


if __name__ == "__main__":
    program(main)
