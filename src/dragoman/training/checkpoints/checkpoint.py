"""The whole state of a training run, in one file that is replaced in one move.

It holds the weights, the optimizer's state, the progress and the decoder state that running text
carries from update to update. Random numbers need no state: every update seeds its own (see
``trainer.py``), and the batches of an epoch are a function of (seed, epoch). The file is
safetensors; the progress is JSON in its header.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dragoman.errors import UserError
from dragoman.files import read_tensor_file, read_tensor_header, write_tensors
from dragoman.runs.weights import check_origin, load_weights, named_weights, weights_metadata
from dragoman.training.checkpoints.progress import Progress
from dragoman.types import State, name_leaves, tree_of

KIND = "checkpoint"  # the kind of file
MODEL, OPTIMIZER, CARRIED = "model", "optimizer", "carried"  # first parts of the names of tensors


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The state of a training run. Captured from a model, its tensors are the model's own."""

    progress: Progress
    tensors: Mapping[str, Tensor]  # by the names they have in the file
    path: Path | None = None  # the file it was read from
    notes: tuple[str, ...] = ()  # what a person should know about it, such as damage to a newer one

    @classmethod
    def capture(
        cls,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        progress: Progress,
        carried: State | None = None,
    ) -> Checkpoint:
        """Return the present state of a run."""
        tensors = {f"{MODEL}.{name}": tensor for name, tensor in named_weights(model).items()}
        for index, parameter in enumerate(_parameters(optimizer)):
            for name, value in optimizer.state.get(parameter, {}).items():
                tensors[f"{OPTIMIZER}.{index}.{name}"] = value.detach().cpu().contiguous()
        if carried is not None:
            for name, tensor in name_leaves(carried.carry, CARRIED):
                tensors[name] = tensor.detach().cpu().contiguous()
        return cls(progress.copy(), tensors)

    @classmethod
    def read(cls, path: Path, run: str = "") -> Checkpoint:
        """Read and verify a checkpoint. ``run``: the name of the run that it has to belong to."""
        header, tensors = read_tensor_file(path)
        check_origin(path, header.metadata, KIND, run)
        return cls(_parse_progress(path, header.metadata), tensors, path)

    def write(self, path: Path, run: str = "", previous: str | None = None) -> None:
        """Write the checkpoint. ``previous``: the name that the checkpoint before it is kept under."""
        metadata = {"progress": json.dumps(asdict(self.progress)), **weights_metadata(KIND, run)}
        write_tensors(path, self.tensors, metadata, previous=previous)

    @property
    def weights(self) -> dict[str, Tensor]:
        """Return the weights of the model by their names in it."""
        prefix = f"{MODEL}."
        return {name.removeprefix(prefix): value for name, value in self.tensors.items() if name.startswith(prefix)}

    def restore(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
        """Load weights and optimizer state, and return the progress."""
        load_weights(model, self.weights, self.path or Path("checkpoint"))
        for index, parameter in enumerate(_parameters(optimizer)):
            prefix = f"{OPTIMIZER}.{index}."
            state: dict[str, Any] = {}
            for name, value in self.tensors.items():
                if name.startswith(prefix):
                    if value.dim() and value.shape != parameter.shape:
                        raise UserError(
                            f"{self.path}: {name} has the shape {tuple(value.shape)}, not {tuple(parameter.shape)}; "
                            "it was made by another optimiser or version; --fresh sets the old run aside"
                        )
                    # "step" goes to the device too: a fused optimizer keeps it there
                    state[name.removeprefix(prefix)] = value.to(parameter.device)
            if state:
                optimizer.state[parameter] = state
        return self.progress.copy()

    def carried(self, device: torch.device) -> State | None:
        """Return the decoder state of running text, if there is one."""
        prefix = f"{CARRIED}."
        leaves = {
            name.removeprefix(prefix): t.to(device) for name, t in self.tensors.items() if name.startswith(prefix)
        }
        rows = max((len(tensor) for tensor in leaves.values()), default=0)
        return State(rows, {}, tree_of(leaves)) if leaves else None


def read_progress(path: Path) -> Progress:
    """Return the progress that a checkpoint holds, without its tensors."""
    return _parse_progress(path, read_tensor_header(path).metadata)


def _parse_progress(path: Path, metadata: Mapping[str, str]) -> Progress:
    try:
        return Progress.from_plain(json.loads(metadata["progress"]))
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        raise UserError(f"{path}: not a checkpoint of this version; --fresh sets the old run aside") from None


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
