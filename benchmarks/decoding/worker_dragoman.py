"""A worker that decodes with one engine of Dragoman: worker_dragoman.py RUN ENGINE INPUTS.json."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from decoding.serve import serve


def main() -> None:
    run, engine, inputs = sys.argv[1:4]
    import dragoman

    if engine == "torch":
        import torch

        torch.set_num_threads(1)
    system = dragoman.load(run, device="cpu", engine=engine)
    options = {"attention": False, "trace": False, "probabilities": False}

    def decode(texts: Sequence[str], beam: int, batch: int) -> list[str]:
        return [each.text for each in system.predict(list(texts), beam=beam, n_best=1, batch=batch, **options)]

    serve(json.loads(Path(inputs).read_text(encoding="utf-8"))["texts"], decode)


if __name__ == "__main__":
    main()
