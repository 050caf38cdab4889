"""From the folder of a run, or of several, to a system that answers."""

from __future__ import annotations

from pathlib import Path

from dragoman.data.splits import PathLike, Paths
from dragoman.inference.ensembles import ensemble, fuse
from dragoman.inference.system import System

DEFAULT_LM_WEIGHT = 0.3


def load(
    folder: Paths, device: str = "auto", *, lm: PathLike | None = None, lm_weight: float = DEFAULT_LM_WEIGHT
) -> System:
    """Load a trained system from its folder; from several folders, an ensemble.

    With ``lm``, the run of a language model, outputs are ranked by log p(y | x) + ``lm_weight`` * log p_lm(y).
    """
    folders = [folder] if isinstance(folder, (str, Path)) else list(folder)
    members = [System.load(path, device) for path in folders]
    system = members[0] if len(members) == 1 else ensemble(members)
    return system if lm is None else fuse(system, System.load(lm, device), lm_weight)
