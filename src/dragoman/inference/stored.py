"""A model on disk that is loaded when it is first needed, and what is told about it before."""

from __future__ import annotations

from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from dragoman.inference.engine.contract import ModelOutline
from dragoman.runs.setup import Setup
from dragoman.runs.weights import WEIGHTS
from dragoman.runtime.container import Container

if TYPE_CHECKING:
    from dragoman.nn.model import Model


class StoredModel:
    """The trained model in the folder of a run."""

    def __init__(self, folder: Path, device: str, setup: Setup | None = None) -> None:
        """``setup``: what is in the folder beside the weights, if it was read already."""
        self.folder, self.device, self._setup = folder, device, setup
        self._model: Model | None = None
        self._lock = Lock()

    def load(self) -> Model:
        """Return the model in evaluation mode, on its device. It is read once."""
        from dragoman.inference.build import build_from_file
        from dragoman.process.devices import pick_device

        with self._lock:
            if self._model is None:
                setup = Setup.read(self.folder) if self._setup is None else self._setup
                model = build_from_file(setup, self.folder / WEIGHTS)
                model.to(pick_device(self.device)).eval()
                self._model = model
            return self._model


def outline_of(model: Model) -> ModelOutline:
    """Return what is told about a model."""
    strides = {name: int(encoder.stride) for name, encoder in model.encoders.items()}  # type: ignore[arg-type]
    return ModelOutline(strides, bool(model.decoder.reads_source), model.parameters_count)


def read_outline(container: Container) -> ModelOutline:
    """Return what a model file tells about its model."""
    about = container.about()
    try:
        strides = {str(name): int(stride) for name, stride in about["strides"].items()}
        return ModelOutline(strides, bool(about["reads_source"]), int(about["parameters"]))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise container.damaged("it does not say what its model is") from None
