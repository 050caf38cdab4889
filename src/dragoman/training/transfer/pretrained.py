"""Pretrained weights of a picture network, loaded by the names they were published under.

A run keeps all weights in its own folder: the file is read when training begins and never again.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from dragoman.config import ConfigError
from dragoman.nn.contracts import Encoder
from dragoman.nn.model import Model
from dragoman.runs.weights import read_tensors

FIRST_LAYER = "conv1.weight"  # of the networks of torchvision


def load_pretrained(model: Model) -> list[str]:
    """Fill the encoders that name a file of weights, and describe in sentences what was loaded."""
    sentences = []
    for name, module in model.encoders.items():
        encoder: Encoder = module  # type: ignore[assignment]
        if encoder.pretrained is None:
            continue
        path, network = encoder.pretrained
        offered = read_tensors(Path(path))
        wanted = network.state_dict()
        if FIRST_LAYER in offered and offered[FIRST_LAYER].shape[1] == 3 and wanted[FIRST_LAYER].shape[1] == 1:
            # grey pictures: one channel gives what three equal channels would
            offered[FIRST_LAYER] = offered[FIRST_LAYER].sum(1, keepdim=True)
        _check(path, wanted, offered)
        with torch.no_grad():
            for key, tensor in wanted.items():
                if key in offered:
                    tensor.copy_(offered[key])
        unused = len(offered.keys() - wanted.keys())
        sentences.append(f"encoder ({name}): {len(wanted):,} tensors from {path}, {unused} in it are of no use here")
    return sentences


def _check(path: str, wanted: dict[str, Tensor], offered: dict[str, Tensor]) -> None:
    """Refuse a file that does not fit the network."""
    # not every publication has the number of batches that batch norm averaged, and it changes nothing
    missing = sorted(key for key in wanted.keys() - offered.keys() if not key.endswith("num_batches_tracked"))
    misshapen = sorted(key for key in wanted.keys() & offered.keys() if wanted[key].shape != offered[key].shape)
    if missing or misshapen:
        problem = (
            f"there is no {missing[0]}" if missing else f"{misshapen[0]} is {tuple(offered[misshapen[0]].shape)} there"
        )
        raise ConfigError(
            f"encoder.weights = {path!r}: does not fit encoder.network ({problem}; {len(missing) + len(misshapen)} "
            "tensors are amiss); it must be a .safetensors file of that network, with the names of torchvision"
        )
