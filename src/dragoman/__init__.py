"""Dragoman trains, measures, explains and ships encoder-decoder models from a person's own paired files.

>>> import dragoman
>>> system = dragoman.load("runs/pairs")     # or dragoman.train("pairs.tsv")
>>> text = system("some text")
>>> report = dragoman.evaluate("runs/pairs", "test.tsv")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dragoman.errors import UserError

if TYPE_CHECKING:
    from dragoman.data.audit.audit import Audit
    from dragoman.evaluation.compare import Comparison
    from dragoman.evaluation.metrics import Report
    from dragoman.evaluation.several import SeveralComparison
    from dragoman.evaluation.verbs import align, calibrate, compare, evaluate, score
    from dragoman.export.verbs import export_run
    from dragoman.inference.load import load
    from dragoman.inference.predictions import Output, Prediction, Scored
    from dragoman.inference.session import Session
    from dragoman.inference.system import System
    from dragoman.recipe.check import DataCheck, check
    from dragoman.serving.client import Client
    from dragoman.training.augmenting import Augmented, augment
    from dragoman.training.boosting import Boosted, boost
    from dragoman.training.verbs import train

__version__ = "0.1.0"
__all__ = [
    "Audit", "Augmented", "Boosted", "Client", "Comparison", "DataCheck", "Output", "Prediction", "Report", "Scored",
    "Session", "SeveralComparison", "System", "UserError", "__version__", "align", "augment", "boost", "calibrate",
    "check", "compare", "evaluate", "export_run", "load", "score", "train",
]  # fmt: skip

_HOMES = {
    "Audit": "dragoman.data.audit.audit",
    "Augmented": "dragoman.training.augmenting",
    "Boosted": "dragoman.training.boosting",
    "Client": "dragoman.serving.client",
    "Comparison": "dragoman.evaluation.compare",
    "DataCheck": "dragoman.recipe.check",
    "Output": "dragoman.inference.predictions",
    "Prediction": "dragoman.inference.predictions",
    "Report": "dragoman.evaluation.metrics",
    "Scored": "dragoman.inference.predictions",
    "Session": "dragoman.inference.session",
    "SeveralComparison": "dragoman.evaluation.several",
    "System": "dragoman.inference.system",
    "align": "dragoman.evaluation.verbs",
    "augment": "dragoman.training.augmenting",
    "boost": "dragoman.training.boosting",
    "calibrate": "dragoman.evaluation.verbs",
    "check": "dragoman.recipe.check",
    "compare": "dragoman.evaluation.verbs",
    "evaluate": "dragoman.evaluation.verbs",
    "export_run": "dragoman.export.verbs",
    "load": "dragoman.inference.load",
    "score": "dragoman.evaluation.verbs",
    "train": "dragoman.training.verbs",
}


def __getattr__(name: str) -> Any:
    """Torch takes a second to import; what needs it is imported when it is first used."""
    if name in _HOMES:
        import importlib

        from dragoman.process import prepare

        prepare()
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'dragoman' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the public names, which is what completion offers."""
    return sorted(__all__)
