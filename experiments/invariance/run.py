"""Does an output depend on what else is in the batch? Decodes the same inputs at batch 1, 7 and 64, beam 1 and 5.

    python experiments/invariance/run.py RUN FILE [--rows 1000]

Tokens must be the same and scores within 1e-4; the one output of n_best=1 must be the first of n_best=5. Exit code 1 if not.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from campaign import machine

import dragoman
from dragoman.data.reading import read

HERE = Path(__file__).resolve().parent


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("run", type=Path)
    arguments.add_argument("file", type=Path)
    arguments.add_argument("--rows", type=int, default=1000)
    asked = arguments.parse_args()
    system = dragoman.load(asked.run)
    inputs = [dict(example.sources) for example in read(asked.file, system.recipe.data).examples[: asked.rows]]
    rows, failures = [], 0
    for beam in (1, 5):
        found = {}
        for batch in (1, 7, 64):
            began = time.monotonic()
            found[batch] = system.predict(inputs, batch=batch, beam=beam, attention=False, trace=False)
            seconds = time.monotonic() - began
            pairs = list(zip(found[batch], found[1], strict=True))
            other = sum(one.tokens != first.tokens for one, first in pairs)
            apart = max(abs(one.score - first.score) for one, first in pairs)
            failures += other + (apart > 1e-4)
            rows.append(
                {"beam": beam, "batch": batch, "other_tokens": other, "largest_difference": apart, "seconds": seconds}
            )
        if beam == 5:
            several = system.predict(inputs, beam=5, n_best=5, attention=False, trace=False)
            first = sum(many.outputs[0].tokens != one.tokens for many, one in zip(several, found[64], strict=True))
            failures += first
    result = {"inputs": len(inputs), "n_best_1_is_not_the_first_of_5": first, "rows": rows, **machine()}
    (HERE / "result.json").write_text(json.dumps(result, indent=2) + "\n")
    lines = [
        "# Output and batch size",
        "",
        f"{len(inputs):,} inputs decoded by one run at three batch sizes, each compared with batch 1.",
        "",
        "| beam | batch | other tokens | largest difference of a score | seconds |",
        "|---|---|---|---|---|",
        *(
            f"| {row['beam']} | {row['batch']} | {row['other_tokens']} | {row['largest_difference']:.1e} | {row['seconds']:.1f} |"
            for row in rows
        ),
        "",
        f"`n_best=1` differs from the first of `n_best=5` for {first} of {len(inputs):,} inputs.",
        "",
        f"Made on {result['date']} with `python experiments/invariance/run.py RUN FILE`, the run of [g2p](../g2p/README.md) for Greek and its "
        f"training words; Dragoman {result['dragoman']}, torch {result['torch']}, {result['cores']} cores of {result['cpu']}.",
        "",
    ]
    (HERE / "README.md").write_text("\n".join(lines))
    print("\n".join(lines))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
