"""Dragoman trains, measures, explains and ships encoder-decoder models from a person's own paired files.

>>> import dragoman
>>> system = dragoman.train("pairs.tsv")     # or dragoman.load("runs/pairs")
>>> system("some text")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.inference.load import load
    from dragoman.inference.system import System
    from dragoman.training.run import train

__version__ = "0.1.0"
__all__ = ["System", "__version__", "load", "train"]

_HOMES = {"System": "dragoman.inference.system", "load": "dragoman.inference.load", "train": "dragoman.training.run"}


def __getattr__(name: str) -> Any:
    """Torch takes a second to import; it is imported when first needed."""
    if name in _HOMES:
        import importlib

        from dragoman.process import prepare

        prepare()
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'dragoman' has no attribute {name!r}")
