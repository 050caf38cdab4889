"""A worker that decodes with CTranslate2 itself: worker_ctranslate2.py MODEL INPUTS.json.

It is given the pieces of the sources and gives back pieces: splitting and joining are not counted. Its own defaults
hold, except that scores are normalised as the run does it, and that <unk> is not written.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from decoding.serve import serve


def main() -> None:
    import ctranslate2

    given: dict[str, Any] = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    translator = ctranslate2.Translator(sys.argv[1], device="cpu", inter_threads=1, intra_threads=1)
    options: dict[str, Any] = {
        "length_penalty": 1, "return_end_token": True, "disable_unk": True, "min_decoding_length": 0,
        "max_input_length": 0, "max_decoding_length": given["limit"], "batch_type": "examples",
    }  # fmt: skip

    def decode(pieces: Sequence[Sequence[str]], beam: int, batch: int) -> list[list[str]]:
        found = translator.translate_batch(pieces, beam_size=beam, max_batch_size=batch, **options)
        return [list(each.hypotheses[0]) for each in found]

    serve(given["pieces"], decode)


if __name__ == "__main__":
    main()
