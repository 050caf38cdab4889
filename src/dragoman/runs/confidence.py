"""The confidence of a run on disk: the numbers of ``runtime/confidence.py`` in a JSON file beside the weights.

The file names the weights that it was fitted with by the SHA-256 that they carry, so that after
another training it is not used. Runs that answer together have a file of their own in the folder of
the first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from dragoman.errors import UserError
from dragoman.files import damaged_file, read_json, read_tensor_header, write_json
from dragoman.files.checksums import KEY
from dragoman.runs.weights import WEIGHTS
from dragoman.runtime.confidence import Confidence

CONFIDENCE = "confidence.json"
REMEDY = "fit it again: dragoman calibrate"


def weights_digest(folder: Path) -> str:
    """Return the SHA-256 that the weights of a run carry; empty where an earlier version wrote them without."""
    return read_tensor_header(folder / WEIGHTS).metadata.get(KEY, "")


def confidence_file(made_of: Sequence[str]) -> str:
    """Return the name of the file for what these weights answer together. ``made_of``: their digests."""
    if len(made_of) == 1:
        return CONFIDENCE
    return f"confidence.{hashlib.sha256(' '.join(made_of).encode()).hexdigest()[:12]}.json"


def write_confidence(folder: Path, made_of: Sequence[str], confidence: Confidence) -> Path:
    """Write the file, and return its path."""
    path = folder / confidence_file(made_of)
    write_json(path, {"weights": list(made_of), **confidence.to_json()})
    return path


def read_confidence(folder: Path, made_of: Sequence[str]) -> Confidence | None:
    """Return the confidence of a run, or of runs together; None: there is none that was fitted with these weights."""
    path = folder / confidence_file(made_of)
    if not path.exists():
        return None
    plain = read_json(path, advice=f"{REMEDY} {folder} DEVFILE, or delete it")
    if plain.get("weights") != list(made_of):
        return None
    try:
        return Confidence.from_json(plain)
    except ValueError as error:
        raise damaged_file(path, str(error), f"{REMEDY} {folder} DEVFILE, or delete it") from None


def missing_confidence(folder: Path | None, made_of: Sequence[str], is_language_model: bool = False) -> UserError:
    """Return the error for outputs whose confidence is asked for where there is none."""
    if is_language_model:
        return UserError("a language model's outputs are neither right nor wrong, so they have no confidence")
    run = "RUN" if folder is None else str(folder)
    if len(made_of) > 1:
        return UserError(
            f"{run}: runs that answer together have a confidence of their own, which was not fitted; fit it: "
            f"dragoman calibrate {run} DEVFILE, with the same other runs (--ensemble, --lm)"
        )
    stale = folder is not None and (folder / CONFIDENCE).exists()
    why = "has other weights than its confidence was fitted with" if stale else "has no confidence"
    return UserError(f"{run}: {why}; fit it on rows that it was not trained on: dragoman calibrate {run} DEVFILE")
