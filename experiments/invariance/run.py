"""Does an output depend on what else is in the batch? Decode the same inputs in batches of 1, 7 and 64, beam 1 and 5.

    python experiments/invariance/run.py RUN FILE [--rows 1000]
    python experiments/invariance/run.py --table        # only write the page, from result.json

Tokens must be the same and scores within 1e-4, and the one output of n_best=1 must be the first of n_best=5; otherwise
the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from runner import Result, describe_machine, tell_mistakes
from tables import page, table

FOLDER = Path(__file__).resolve().parent
TOLERANCE = 1e-4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--table", action="store_true", help="only write the page")
    options = parser.parse_args()
    path = FOLDER / "result.json"
    if not options.table:
        if options.file is None:
            parser.error("a run and a file are needed, unless only the page is to be written (--table)")
        path.write_text(json.dumps(compare_batches(options.run, options.file, options.rows), indent=2) + "\n")
    result = json.loads(path.read_text())
    text = write_page(result)
    print(text)
    (FOLDER / "README.md").write_text(text, encoding="utf-8")
    differences = [row["other_tokens"] or row["largest_difference"] > TOLERANCE for row in result["rows"]]
    if any(differences) or result["n_best_1_is_not_the_first_of_5"]:
        sys.exit(1)


def compare_batches(run: Path, file: Path, count: int) -> Result:
    """Decode the inputs in batches of each size, and compare every output with that of batch 1."""
    import dragoman
    from dragoman.data.reading.read import read

    system = dragoman.load(run)
    inputs = [dict(example.sources) for example in read(file, system.recipe.data).examples[:count]]
    rows, changed = [], 0
    for beam in (1, 5):
        predictions = {}
        for batch in (1, 7, 64):
            began = time.monotonic()
            predictions[batch] = system.predict(inputs, batch=batch, beam=beam, attention=False, trace=False)
            seconds = time.monotonic() - began
            pairs = list(zip(predictions[batch], predictions[1], strict=True))
            rows.append(
                {
                    "beam": beam,
                    "batch": batch,
                    "other_tokens": sum(prediction.tokens != alone.tokens for prediction, alone in pairs),
                    "largest_difference": max(abs(prediction.score - alone.score) for prediction, alone in pairs),
                    "seconds": seconds,
                }
            )
        if beam == 5:
            lists = system.predict(inputs, beam=5, n_best=5, attention=False, trace=False)
            pairs = list(zip(lists, predictions[64], strict=True))
            changed = sum(several.outputs[0].tokens != single.tokens for several, single in pairs)
    return {"inputs": len(inputs), "n_best_1_is_not_the_first_of_5": changed, "rows": rows, **describe_machine()}


def write_page(result: Result) -> str:
    rows = [
        [
            str(row["beam"]),
            str(row["batch"]),
            str(row["other_tokens"]),
            f"{row['largest_difference']:.1e}",
            f"{row['seconds']:.1f}",
        ]
        for row in result["rows"]
    ]
    return page(
        "Output and batch size",
        f"{result['inputs']:,} inputs decoded by one run in batches of three sizes, each compared with batch 1.",
        table(("beam", "batch", "other tokens", "largest difference of a score", "seconds"), rows),
        f"`n_best=1` differs from the first of `n_best=5` for {result['n_best_1_is_not_the_first_of_5']} of "
        f"{result['inputs']:,} inputs.",
        f"Made on {result['date']} with `python experiments/invariance/run.py RUN FILE`, the run of "
        f"[g2p](../g2p/README.md) for Greek and its training words; Dragoman {result['dragoman']}, torch "
        f"{result['torch']}, {result['cores']} cores of {result['cpu']}.",
    )


if __name__ == "__main__":
    tell_mistakes(main)
