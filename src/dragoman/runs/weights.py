"""The weights of a run on disk: every tensor once, by name, as safetensors."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from dragoman.errors import UserError


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
    wanted = named_weights(model)
    missing, unknown = wanted.keys() - weights.keys(), weights.keys() - wanted.keys()
    shapes = [name for name in wanted.keys() & weights.keys() if wanted[name].shape != weights[name].shape]
    if missing or unknown or shapes:
        raise UserError(
            f"{where}: does not fit the config beside it "
            f"(missing: {sorted(missing)[:3]}, unknown: {sorted(unknown)[:3]}, other shape: {sorted(shapes)[:3]}); "
            "the folder is damaged or was put together from two runs"
        )
    model.load_state_dict(weights, strict=False)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a file of tensors, or raise an error that names it."""
    try:
        return load_file(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; is this the folder of a finished run?") from None
    except Exception as error:  # safetensors raises its own kinds for damaged files
        raise UserError(f"{path}: cannot be read ({error})") from None
