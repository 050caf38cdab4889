"""Dragoman trains, measures, explains and ships encoder-decoder models from a person's own paired files.

>>> import dragoman
>>> system = dragoman.train("pairs.tsv")     # or dragoman.load("runs/pairs")
>>> system("some text")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dragoman.system import System
    from dragoman.workflow import load, train

__version__ = "0.1.0"
__all__ = ["System", "__version__", "load", "train"]

_HOMES = {"System": "dragoman.system", "load": "dragoman.workflow", "train": "dragoman.workflow"}


def __getattr__(name: str) -> Any:
    """torch takes a second to import; it is imported when first needed."""
    if name in _HOMES:
        import importlib

        from dragoman.memory import keep_pages
        from dragoman.threads import sleep_soon

        keep_pages()
        sleep_soon()
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'dragoman' has no attribute {name!r}")
