"""All that a training run is, in one file replaced in one move: weights, optimiser, schedule, data position, patience,
and the state that running text carries from update to update.

Random numbers need no state: every update seeds its own (see ``trainer.py``), and the batches of an epoch are a
function of (seed, epoch). The file is safetensors; the position is JSON in its header.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from dragoman.errors import UserError
from dragoman.files import write_tensors
from dragoman.types import State, Tree

CARRIED = "carried"  # names of the tensors of a carried state begin with this


@dataclass
class Progress:
    """Where a run stands."""

    update: int = 0
    epoch: int = 0
    position: int = 0  # batches of this epoch already trained on
    tokens: int = 0
    seconds: float = 0.0  # trained so far, over all sittings
    reductions: int = 0  # of the learning rate, on plateaus
    waited: int = 0  # validations since the best
    waited_plateau: int = 0
    skipped: int = 0  # updates left out because the gradient was not finite
    baseline: float | None = None  # of the rewards of hard attention's choices; None: there was no choice yet
    best: list[float] = field(default_factory=list)  # (score, -loss) of the best validation
    best_update: int = 0
    snapshots: list[list[float]] = field(
        default_factory=list
    )  # (score, -loss, update) of the weights kept for averaging
    metrics_bytes: int = 0  # how much of metrics.jsonl belongs to this point
    done: str = ""  # why training ended; empty while it has not


def named_weights(model: torch.nn.Module) -> dict[str, Tensor]:
    """Every parameter and buffer once: of tied weights only the first name."""
    seen: set[int] = set()
    weights = {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() in seen and tensor.numel():
            continue
        seen.add(tensor.data_ptr())
        weights[name] = tensor.detach().contiguous().cpu()
    return weights


def load_weights(model: torch.nn.Module, weights: dict[str, Tensor], where: Path) -> None:
    """Exactly the tensors of ``named_weights``, or a sentence that says which are wrong."""
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
    try:
        return load_file(path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; is this the folder of a finished run?") from None
    except Exception as error:  # safetensors raises its own kinds for damaged files
        raise UserError(f"{path}: cannot be read ({error})") from None


def save_checkpoint(
    path: Path,
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    carried: State | None = None,
) -> None:
    tensors = {f"model.{name}": tensor for name, tensor in named_weights(model).items()}
    for index, parameter in enumerate(_parameters(optimizer)):
        for name, value in optimizer.state.get(parameter, {}).items():
            tensors[f"optimizer.{index}.{name}"] = value.detach().cpu().contiguous()
    if carried is not None:
        tensors |= dict(_leaves(carried.carry, CARRIED))
    write_tensors(path, tensors, {"progress": json.dumps(asdict(progress))})


def load_checkpoint(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    tensors = read_tensors(path)
    progress = read_progress(path)
    weights = {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
    load_weights(model, weights, path)
    for index, parameter in enumerate(_parameters(optimizer)):
        prefix = f"optimizer.{index}."
        state: dict[str, Any] = {}
        for name, value in tensors.items():
            if name.startswith(prefix):
                kind = name.removeprefix(prefix)
                if value.dim() and value.shape != parameter.shape:
                    raise UserError(
                        f"{path}: {name} has the shape {tuple(value.shape)}, not {tuple(parameter.shape)}; "
                        "it was made by another optimiser or version; --fresh sets the old run aside"
                    )
                state[kind] = value.to(parameter.device)  # "step" too: a fused optimiser keeps it there
        if state:
            optimizer.state[parameter] = state
    return progress


def load_carried(path: Path, device: torch.device) -> State | None:
    """The decoder state of running text, if the run carries one."""
    tree: dict[str, Any] = {}
    rows = 0
    for name, tensor in read_tensors(path).items():
        if name.startswith(CARRIED):
            *above, last = name.removeprefix(CARRIED).strip(".").split(".")
            branch = tree
            for step in above:
                branch = branch.setdefault(step, {})
            branch[last], rows = tensor.to(device), len(tensor)
    return State(rows, {}, tree) if tree else None


def _leaves(tree: Tree, name: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(tree, Tensor):
        yield name, tree.detach().cpu().contiguous()
    else:
        for key, branch in tree.items():
            yield from _leaves(branch, f"{name}.{key}")


def read_progress(path: Path) -> Progress:
    with safe_open(path, framework="pt") as file:
        header = file.metadata() or {}
    try:
        return Progress(**json.loads(header["progress"]))
    except (KeyError, ValueError, TypeError):
        raise UserError(f"{path}: not a checkpoint of this version; --fresh sets the old run aside") from None


def average(paths: Iterable[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several files, summed in double precision."""
    total: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    count = 0
    for path in paths:
        count += 1
        for name, tensor in read_tensors(path).items():
            kinds[name] = tensor.dtype
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / count).to(kinds[name]) for name, tensor in total.items()}


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
