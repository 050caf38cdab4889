"""Pictures of formulas to LaTeX: can the model fit them, and how much of it carries over?

    python experiments/formulas/run.py --data FOLDER

FOLDER holds png/ and index.tsv of the sample of im2latex. Writes results/*.json, README.md and overlays.png.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import dragoman, run, run_together
from datasets import formulas, write
from pages import arguments, options, write_page

HERE = Path(__file__).resolve().parent
SHOWN = 3


def main() -> None:
    asked = arguments(__doc__, HERE).parse_args()
    rows = formulas(asked.data)
    files = {side: write(rows[side], asked.runs / f"{side}.tsv") for side in ("train", "dev", "test")}
    chosen = options(HERE / "tokens.toml", asked.set)
    test = run("test", files["train"], files["dev"], files["test"], asked.runs, asked.results, chosen, asked.threads)
    train = run_together(
        "train", [test], files["train"], asked.runs, asked.results
    )  # measured on what it was trained on
    found = {"test": test, "train": train}
    sheet = HERE / "overlays.png"
    if asked.results == HERE / "results" and not sheet.exists():
        shown = sorted(rows["test"], key=lambda row: len(row[1]))[:SHOWN]
        paths = [path for path, _ in shown]
        dragoman(["inspect", str(asked.runs / "test"), *paths, "-o", str(sheet)], asked.runs / "inspect.log", threads=1)
    about = [
        "998 formulas to train on, 100 for dev, 100 for test, about 264 × 42 pixels and 50 tokens each. A thousand pictures are too few to read",
        "formulas never seen; the row *train* says whether the encoder sees enough to fit them. Settings: [tokens](tokens.toml). A word error is",
        "the error of a token.",
    ]
    after = ["![attention over test formulas, token by token](overlays.png)"]
    write_page(asked, HERE, "Formulas", about, found, ("wer", "exact", "bleu"), after=after)


if __name__ == "__main__":
    main()
