"""Published weights of a picture network, put into a new run by the names they were published under.

A run keeps all weights in its own folder: the file is read when training begins and never again.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from dragoman.config import ConfigError
from dragoman.nn.model import Model
from dragoman.recipe import Recipe
from dragoman.training.checkpoint import read_tensors


def take_published(recipe: Recipe, model: Model) -> list[str]:
    """Fill the encoders whose config names a file of ``weights``; what was taken comes back in sentences."""
    told = []
    for name, source in recipe.sources.items():
        path = getattr(source.encoder, "weights", None)
        if path is None:
            continue
        network: nn.Module = model.encoders[name].network  # type: ignore[assignment]
        offered = read_tensors(Path(path))
        wanted = network.state_dict()
        first = "conv1.weight"
        if first in offered and offered[first].shape[1] == 3 and wanted[first].shape[1] == 1:
            offered[first] = offered[first].sum(1, keepdim=True)  # what three equal channels would give: grey pictures
        _check(path, wanted, offered)
        with torch.no_grad():
            for key, tensor in wanted.items():
                if key in offered:
                    tensor.copy_(offered[key])
        unused = len(offered.keys() - wanted.keys())
        told.append(f"encoder ({name}): {len(wanted):,} tensors from {path}, {unused} in it are of no use here")
    return told


def _check(path: str, wanted: dict[str, Tensor], offered: dict[str, Tensor]) -> None:
    # the count of batches that were averaged is not in every publication, and changes nothing
    missing = sorted(key for key in wanted.keys() - offered.keys() if not key.endswith("num_batches_tracked"))
    other = sorted(key for key in wanted.keys() & offered.keys() if wanted[key].shape != offered[key].shape)
    if missing or other:
        what = f"there is no {missing[0]}" if missing else f"{other[0]} is {tuple(offered[other[0]].shape)} there"
        raise ConfigError(
            f"encoder.weights = {path!r}: does not fit encoder.network ({what}; {len(missing) + len(other)} tensors "
            "are amiss); it must be a .safetensors file of that network, with the names of torchvision"
        )
