"""The weights of a run on disk: every tensor once, by name, as safetensors."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from dragoman.errors import Unverified, UserError
from dragoman.files import read_tensor_file
from dragoman.runs.setup import check_run_name

if TYPE_CHECKING:  # only for annotations: whoever has tensors has imported torch
    import torch
    from torch import Tensor

WEIGHTS = "model.safetensors"
KIND = "model"  # of that file
PORTABLE = "model.dragoman"  # the same model, for the native library


def named_weights(model: torch.nn.Module) -> dict[str, Tensor]:
    """Return every parameter and buffer once, on the CPU; tied weights have their first name only."""
    seen: set[int] = set()
    weights = {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() in seen and tensor.numel():
            continue
        seen.add(tensor.data_ptr())
        weights[name] = tensor.detach().contiguous().cpu()
    return weights


def load_weights(model: torch.nn.Module, weights: dict[str, Tensor], where: Path) -> None:
    """Load exactly the tensors of ``named_weights``, or raise an error that says which do not fit."""
    check_shapes(model, {name: tuple(tensor.shape) for name, tensor in weights.items()}, where)
    model.load_state_dict(weights, strict=False)


def check_shapes(model: torch.nn.Module, shapes: Mapping[str, tuple[int, ...]], where: Path) -> None:
    """Raise an error that says which tensors do not fit. The model may be on torch's meta device."""
    wanted: dict[str, tuple[int, ...]] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:  # tied weights have their first name only
            seen.add(id(tensor))
            wanted[name] = tuple(tensor.shape)
    missing, unknown = wanted.keys() - shapes.keys(), shapes.keys() - wanted.keys()
    others = [name for name in wanted.keys() & shapes.keys() if wanted[name] != shapes[name]]
    if missing or unknown or others:
        raise UserError(
            f"{where}: does not fit the config beside it "
            f"(missing: {sorted(missing)[:3]}, unknown: {sorted(unknown)[:3]}, other shape: {sorted(others)[:3]}); "
            "the folder is damaged or was put together from two runs"
        )


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a file of tensors that anyone may have made, or raise an error that names it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", Unverified)
        return read_tensor_file(path)[1]


def weights_metadata(kind: str, run: str, update: int | None = None) -> dict[str, str]:
    """Return what a file of weights says about itself, beside its checksum."""
    facts = {"kind": kind, "run": run, "update": None if update is None else str(update)}
    return {name: value for name, value in facts.items() if value}


def read_weights(path: Path, kind: str, run: str, update: int | None = None) -> dict[str, Tensor]:
    """Read the weights of a run; a file that is not what ``weights_metadata`` says is refused."""
    header, tensors = read_tensor_file(path)
    check_origin(path, header.metadata, kind, run, update)
    return tensors


def check_origin(path: Path, metadata: Mapping[str, str], kind: str, run: str, update: int | None = None) -> None:
    """Raise an error where a file of tensors is of another run, kind or update than its name says."""
    check_run_name(path, metadata.get("run"), run)
    for name, expected in (("kind", kind), ("update", None if update is None else str(update))):
        if expected is not None and metadata.get(name, expected) != expected:
            raise UserError(
                f"{path}: holds another file of the run ({name} {metadata[name]}, not {expected}); restore the file"
            )
