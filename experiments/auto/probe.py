"""How long an update takes here: ``probe.py TRAIN DEV CONFIG THREADS`` prints it, and the parameters, as JSON.

A rate that falls to the end must know its end. With a budget of seconds, that takes knowing the speed beforehand.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

UPDATES = 12


def main(train: str, dev: str, config: str, threads: str) -> None:
    from dragoman.memory import keep_pages

    keep_pages()  # as the command line does, before torch is imported
    from dragoman.planning import plan
    from dragoman.training.trainer import Trainer

    settled = plan(train, dev, config=Path(config), settings=[f"training.threads={threads}"])
    system = settled.system

    def validate(_: Any) -> Any:
        raise RuntimeError("nothing is validated here")

    with tempfile.TemporaryDirectory() as folder:
        data = system.encoded(settled.data.train)
        trainer = Trainer(system.model, data, system.recipe.training, Path(folder), validate)
        seconds = trainer.measure(UPDATES)
    found = {
        "seconds_an_update": seconds,
        "warmup": system.recipe.training.optim.warmup,
        "parameters": system.model.parameters_count,
        "rows": len(settled.data.train),
        "target_tokens": sum(data.target_lengths),
        "target_vocabulary": system.target.size,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
