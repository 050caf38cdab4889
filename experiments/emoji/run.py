"""Pictures to captions: Noto emoji and their English names, soft and hard attention.

    python experiments/emoji/run.py --data FOLDER [--only soft hard]

FOLDER holds noto_32px.png, a sheet of 32 x 32 pictures, and index.tsv, which says where each is and what it is called.
Test pictures are known figures in a skin tone that they were not seen in. "hard" starts from the weights of "soft".
Writes results/*.json, README.md and overlays-*.jpg: ten test pictures with each word's attention laid over them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import dragoman, program, run
from datasets import emoji, write
from pages import arguments, options, write_page
from PIL import Image

HERE = Path(__file__).resolve().parent
SHOWN = 10  # pictures of the sheet of overlays


def main() -> None:
    asked = arguments(__doc__, HERE).parse_args()
    pictures = emoji(asked.data, asked.runs / "pictures")
    sides = {
        side: write([(one.path, one.caption) for one in pictures if one.split == side], asked.runs / f"{side}.tsv")
        for side in ("train", "dev", "test")
    }
    names = asked.only or ["soft", "hard"]
    common: dict[str, Any] = {**sides, "runs": asked.runs, "results": asked.results, "threads": asked.threads}
    found = {}
    if "soft" in names:
        found["soft"] = run("soft", options=options(HERE / "soft.toml", asked.set), **common)
    if "hard" in names:  # which regions are worth drawing is learnt sooner by one who can see
        chosen = options(HERE / "hard.toml", asked.set)
        chosen += ["--init-encoder", str(asked.runs / "soft"), "--init-decoder", str(asked.runs / "soft")]
        found["hard"] = run("hard", options=chosen, **common)
    for name in found:
        sheet = HERE / f"overlays-{name}.jpg"
        if asked.results == HERE / "results" and not sheet.exists():
            test = [one.path for one in pictures if one.split == "test"]
            shown = test[:: len(test) // SHOWN][:SHOWN]
            drawn = asked.runs / f"overlays-{name}.png"
            dragoman(["inspect", str(asked.runs / name), *shown, "-o", str(drawn)], asked.runs / "inspect.log", 1)
            with Image.open(drawn) as picture:
                picture.save(sheet, quality=85, optimize=True)
    about = [
        "3,228 pictures of 32 × 32 pixels and their names, from scratch. Test pictures (362) are known figures in a skin tone that they were",
        "not seen in: “man student: medium skin tone”. Settings: [soft](soft.toml); [hard](hard.toml), which starts from the weights of *soft*.",
        "The pictures are Noto Emoji (Apache 2.0). With half as many epochs *soft* had 77.35 on the same machine and 80.66 on another: it was not done learning.",
    ]
    sheets = [f"![attention of the run {name}, word by word](overlays-{name}.jpg)" for name in found]
    write_page(asked, HERE, "Captions of emoji", about, found, ("exact", "wer", "bleu"), after=sheets)


if __name__ == "__main__":
    program(main)
