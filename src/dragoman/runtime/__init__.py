"""The runtime: open a file ``model.dragoman`` with the native library and ask it, with numpy alone.

The same folder is shipped as the distribution ``dragoman-runtime`` under the name
``dragoman_runtime``, without the rest of the package. So it imports only itself, by relative
imports, and numpy. This is ground: everyone may import it.

>>> model = dragoman_runtime.load("model.dragoman")
>>> text = model.predict("some text").text
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .errors import TooLong, UserError

if TYPE_CHECKING:
    from .model import Model, load
    from .predictions import Output, Prediction

__all__ = ["Model", "Output", "Prediction", "TooLong", "UserError", "load"]

_HOMES = {"Model": "model", "load": "model", "Output": "predictions", "Prediction": "predictions"}


def __getattr__(name: str) -> Any:
    """Import numpy and the library when they are first used: the errors alone need neither."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
