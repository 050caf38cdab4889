"""From the folder of a run, or of several, to a system that answers."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.errors import UnfinishedRun, UserError
from dragoman.inference.system import System
from dragoman.recipe.arguments import with_known_arguments
from dragoman.runs.history import describe_unfinished

if TYPE_CHECKING:
    from dragoman.data.splits import PathLike, Paths

DEFAULT_LM_WEIGHT = 0.3


@with_known_arguments
def load(
    folder: Paths,
    device: str = "auto",
    *,
    lm: PathLike | None = None,
    lm_weight: float = DEFAULT_LM_WEIGHT,
    engine: str = "auto",
) -> System:
    """Load a trained system from its folder; from several folders, an ensemble.

    ``engine`` computes the answers: "torch"; "native", the C library, which runs the file model.dragoman of a run;
    "onnx" or "ctranslate2" (exports, see ``dragoman.export_run``); or "numpy", which is slow and easy to read. "auto"
    is native on a CPU if the run has that file and is alone, else torch. With ``lm``, the run of a language model,
    outputs are ranked by log p(y | x) + ``lm_weight`` * log p_lm(y).

    >>> dragoman.load("runs/pairs")
    System(auto, ... parameters, runs/pairs)
    >>> dragoman.load(["runs/a", "runs/b"])
    System(ensemble of System(...), System(...))

    A run whose training was stopped before its end gives a warning, ``dragoman.errors.UnfinishedRun``.
    """
    given: Any = folder
    folders: list[PathLike] = [given] if isinstance(given, (str, Path)) or not isinstance(given, Iterable) else [*given]
    wrong = next((each for each in folders if not isinstance(each, (str, os.PathLike))), None)
    if wrong is not None:
        raise UserError(f"load takes the folder of a run, or a list of folders; got {type(wrong).__name__}")
    if engine == "auto" and (len(folders) > 1 or lm is not None):
        engine = "torch"  # several decoders are searched together step by step, where torch is faster
    members = [System.load(path, device, engine) for path in folders]
    for path in [*folders, *([] if lm is None else [lm])]:
        if sentence := describe_unfinished(Path(path)):
            warnings.warn(sentence, UnfinishedRun, stacklevel=3)  # above ``with_known_arguments``
    if len(members) == 1 and lm is None:
        return members[0]
    from dragoman.inference.ensembles import ensemble, fuse

    system = members[0] if len(members) == 1 else ensemble(members)
    return system if lm is None else fuse(system, System.load(lm, device), lm_weight)


def load_combined(
    run: PathLike,
    device: str = "auto",
    ensemble: Sequence[PathLike] = (),
    lm: PathLike | None = None,
    lm_weight: float | None = None,
    engine: str = "auto",
) -> System:
    """Load a run as the options of the command line say: with other runs, and with a language model."""
    if lm is None and lm_weight is not None:
        raise UserError("--lm-weight is the weight of a language model; give one with --lm RUN")
    weight = {} if lm_weight is None else {"lm_weight": lm_weight}
    return load([run, *ensemble], device, lm=lm, engine=engine, **weight)
