"""Measure how long an update takes: ``probe.py TRAIN DEV CONFIG THREADS`` prints it, and the parameters, as JSON.

A learning rate that falls until the end must know the end. With a budget of seconds, the speed must be known first.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

UPDATES = 12


def main(train: str, dev: str, config: str, threads: str) -> None:
    from dragoman.process.allocator import keep_pages

    keep_pages()  # as the command line does, before torch is imported
    from dragoman.training.corpus import training_corpus
    from dragoman.training.plan import plan
    from dragoman.training.trainer import Trainer

    planned = plan(train, dev, config=Path(config), settings=[f"training.threads={threads}"])
    system = planned.system

    def validate(_: Any) -> Any:
        raise RuntimeError("a probe ends before the first validation")

    data = training_corpus(system, planned.rows)
    seconds = Trainer(system.model, data, system.recipe.training, validate).measure(UPDATES)
    measured = {
        "seconds_an_update": seconds,
        "warmup": system.recipe.training.optim.warmup,
        "parameters": system.model.parameters_count,
        "rows": len(planned.data.train),
        "target_tokens": sum(length + 1 for length in planned.rows.target_lengths),
        "target_vocabulary": system.target.size,
    }
    print(json.dumps(measured))


if __name__ == "__main__":
    main(*sys.argv[1:])
