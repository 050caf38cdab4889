"""Which engine computes for a run, and why.

``auto`` takes the native library where the folder of the run has a file ``model.dragoman`` that was
written from the weights beside it and has shown that it says the same. Answers are then those of
torch, up to ties of equally good outputs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dragoman.config import nearest
from dragoman.errors import UserError
from dragoman.files import read_tensor_header
from dragoman.files.checksums import KEY
from dragoman.process.devices import is_surely_cpu
from dragoman.runs.weights import PORTABLE, WEIGHTS
from dragoman.runtime.container import Container
from dragoman.runtime.library import why_unavailable

# onnx, ctranslate2: an export of the run; numpy: the plain interpreter of programs, slow
ENGINES = ("auto", "torch", "native", "onnx", "ctranslate2", "numpy")


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """The engine that computes for a run."""

    name: str
    reason: str  # in words
    container: Container | None = None  # what the native library runs


FOLDER = "portable"  # of the export, in the folder of the run


def choose_engine(folder: Path, device: str, engine: str) -> EngineChoice:
    """Choose what computes for the run of a folder. An engine that was asked for and is not there is an error."""
    if engine not in ENGINES:
        raise UserError(f"engine = {engine!r}: there is no such engine; {nearest(engine, ENGINES)}")
    if engine not in ("auto", "native"):
        return EngineChoice(engine, "it was asked for")
    try:
        container = open_portable(folder, device, exported_first=engine == "native")
        if engine == "auto" and container.about().get("int8"):
            return EngineChoice("torch", f"{container.name} has weights of 8 bits, with which some answers differ")
        return EngineChoice("native", f"{container.name} is there", container)
    except UserError as error:
        if engine == "native":
            raise
        return EngineChoice("torch", str(error))


def open_portable(folder: Path, device: str = "cpu", *, exported_first: bool = False) -> Container:
    """Open the file of a run that the native library reads, or say why it cannot be used.

    Training writes it into the folder of the run, and an export into a folder of its own. If both are there, it is the
    one of training, or ``exported_first``.
    """
    places = [folder / PORTABLE, folder / FOLDER / PORTABLE]
    there = [place for place in (reversed(places) if exported_first else places) if place.exists()]
    if not there:
        raise UserError(f"{folder}: has no {PORTABLE}; write it: dragoman export {folder} --to portable")
    if (reason := why_unavailable()) is not None:
        raise UserError(reason)
    if not is_surely_cpu(device):
        raise UserError(f"device {device}: the native library computes on CPUs only; give the device cpu")
    digest = read_tensor_header(folder / WEIGHTS).metadata.get(KEY)
    for path in there:
        container = Container.open(path)
        if digest is not None and container.about().get("weights") == digest:
            return container
    raise UserError(
        f"{there[0]}: was not written from the weights in {WEIGHTS}; write it again: "
        f"dragoman export {folder} --to portable"
    )
