"""Pictures of formulas to LaTeX: can the model fit them, and how much of it carries over?

    python experiments/formulas/run.py --data FOLDER

FOLDER holds png/ and index.tsv of the sample of im2latex. Writes results/*.json, README.md and overlays.jpg.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import dragoman, program, run, run_together
from datasets import formulas, write
from pages import arguments, options, write_page
from PIL import Image

HERE = Path(__file__).resolve().parent
WANTED = 12  # tokens of a formula that is drawn


def main() -> None:
    asked = arguments(__doc__, HERE).parse_args()
    rows = formulas(asked.data)
    files = {side: write(rows[side], asked.runs / f"{side}.tsv") for side in ("train", "dev", "test")}
    common: dict[str, Any] = {**files, "runs": asked.runs, "results": asked.results, "threads": asked.threads}
    first = run("tokens", options=options(HERE / "tokens.toml", asked.set), **common)
    origin = str(asked.runs / "tokens")
    chosen = [*options(HERE / "settled.toml", asked.set), "--init-encoder", origin, "--init-decoder", origin]
    settled = run("settled", options=chosen, **common)
    fitted = run_together("fitted", [settled], files["train"], asked.runs, asked.results)
    found = {"tokens": first, "settled": settled, "fitted": fitted}
    sheet = HERE / "overlays.jpg"
    if asked.results == HERE / "results" and not sheet.exists():
        shown = [min(rows[side], key=lambda row: abs(len(row[1].split()) - WANTED))[0] for side in ("train", "test")]
        drawn = asked.runs / "overlays.png"
        dragoman(["inspect", str(asked.runs / "settled"), *shown, "-o", str(drawn)], asked.runs / "inspect.log", 1)
        with Image.open(drawn) as picture:
            picture.convert("RGB").save(sheet, quality=85, optimize=True)
    about = [
        "998 formulas to train on, 100 for dev, 100 for test, about 264 × 42 pixels and 50 tokens each. A thousand pictures are too few to read",
        "formulas never seen; the question is whether the encoder sees enough to fit them. *tokens* and *settled* are measured on test, *fitted* is",
        "*settled* on the pictures it was trained on. Settings: [tokens](tokens.toml), and from there with the encoder frozen [settled](settled.toml). A word",
        "error is the error of a token; more are written than there are, so the share can exceed 100 %.",
    ]
    after = [
        "Attention (the mean over layers and heads) over a picture of the training side, and over one of test. It begins at the first symbol and "
        "drifts to the right, but loosely: much of what is written is known by heart, and a formula never seen is not read.",
        "",
        "![attention, token by token](overlays.jpg)",
    ]
    write_page(asked, HERE, "Formulas", about, found, ("wer", "exact"), after=after)


if __name__ == "__main__":
    program(main)
