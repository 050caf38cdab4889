"""Questions about stories: the twenty bAbI tasks with 900 training questions each, story and question as two sources.

    python experiments/babi/run.py --data FOLDER [--only 1 2 …]

FOLDER holds qaN_{train,valid,test}.txt. Writes results/*.json and README.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import run
from datasets import stories, write
from pages import arguments, options, write_page

HERE = Path(__file__).resolve().parent
HEADER = ("story", "question", "answer")
# Test accuracy with 1,000 questions: the LSTM of Weston et al. 2015, and the recurrent example of Keras.
WESTON = [50, 20, 20, 61, 70, 48, 49, 45, 64, 44, 72, 74, 94, 27, 21, 23, 51, 52, 8, 91]
KERAS = [
    52.1,
    37.0,
    20.5,
    62.9,
    61.9,
    50.7,
    78.9,
    77.2,
    64.0,
    47.7,
    74.9,
    76.4,
    94.4,
    34.8,
    32.4,
    50.6,
    49.1,
    90.8,
    9.0,
    90.7,
]


def main() -> None:
    asked = arguments(__doc__, HERE).parse_args()
    found, beside, above = {}, {}, 0
    for task in asked.only or [str(number) for number in range(1, 21)]:
        files = {
            side: write(
                [HEADER, *stories(asked.data / f"qa{task}_{side}.txt")], asked.runs / "data" / f"{task}.{side}.tsv"
            )
            for side in ("train", "valid", "test")
        }
        chosen = [
            *options(HERE / "two-sources.toml", asked.set),
            "--source",
            "story",
            "--source",
            "question",
            "--target",
            "answer",
        ]
        name = f"task {task}"
        found[name] = run(
            f"task-{task}",
            files["train"],
            files["valid"],
            files["test"],
            asked.runs,
            asked.results,
            chosen,
            asked.threads,
        )
        best = max(WESTON[int(task) - 1], KERAS[int(task) - 1])
        beside[name] = f"{WESTON[int(task) - 1]} / {KERAS[int(task) - 1]}"
        above += found[name]["scores"]["exact"] > best
    about = [
        "Story and question are two sources with an encoder each, read as one memory. One model a task, all with the same",
        "[settings](two-sources.toml). Published: the LSTM of Weston et al. 2015 / the recurrent example of Keras, both with 1,000 questions; here",
        "900 are trained on and 100 are dev.",
        "",
        f"Above the better of the two in **{above} of {len(found)}** tasks.",
    ]
    write_page(asked, HERE, "bAbI, 1,000 questions a task", about, found, ("exact",), beside=beside)


if __name__ == "__main__":
    main()
