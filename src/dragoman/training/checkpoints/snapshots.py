"""The weights that the final model is made of: kept at validations, averaged at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from dragoman.files import write_tensors
from dragoman.nn.model import Model
from dragoman.runs.weights import load_weights, read_tensors
from dragoman.training.checkpoints.progress import Progress
from dragoman.training.events import Scores


class Snapshots:
    """Files of weights in a run's folder.

    ``Progress``, and so the checkpoint, says which of them count.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "snapshots"

    def path(self, update: int) -> Path:
        return self.folder / f"{update:08d}.safetensors"

    def paths(self, progress: Progress) -> list[Path]:
        """Return the files that make the final model, in the order of ``progress.snapshots``."""
        return [self.path(int(update)) for _, _, update in progress.snapshots]

    def write(self, update: int, weights: Mapping[str, Tensor]) -> None:
        write_tensors(self.path(update), weights)

    def delete_others(self, progress: Progress) -> None:
        """Delete the files that a checkpoint with this progress does not need."""
        needed = set(self.paths(progress))
        for path in self.folder.glob("*.safetensors"):
            if path not in needed:
                path.unlink()


def average(paths: Iterable[Path]) -> dict[str, Tensor]:
    """Return the mean of the weights of several files, summed in double precision."""
    total: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    count = 0
    for path in paths:
        count += 1
        for name, tensor in read_tensors(path).items():
            kinds[name] = tensor.dtype
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / count).to(kinds[name]) for name, tensor in total.items()}


def load_final_weights(
    model: Model, snapshots: Snapshots, progress: Progress, validate: Callable[[Model], Scores] | None = None
) -> None:
    """Load the mean of the snapshots, or the best one alone where ``validate`` finds it better.

    Better means in score and in loss. The snapshots were chosen by their score, so some of that is
    luck, which their mean did not have. But after a short training the mean includes weights that
    had hardly learnt anything, and is worse in both. Without ``validate`` nothing is compared.
    """
    if not progress.snapshots:
        return
    load_weights(model, average(snapshots.paths(progress)), snapshots.folder.parent)
    model.eval()
    if validate is None or len(progress.snapshots) == 1:
        return
    with torch.inference_mode():
        mean = validate(model)
    score, negative_loss, update = max(progress.snapshots)
    if score > mean.score and -negative_loss < mean.loss:
        path = snapshots.path(int(update))
        load_weights(model, read_tensors(path), path)
