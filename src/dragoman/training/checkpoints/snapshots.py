"""The weights that the final model is made of: kept at validations, averaged at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor

from dragoman.errors import UserError
from dragoman.files import damaged_file, delete_files, write_tensors
from dragoman.nn.model import Model
from dragoman.runs.weights import load_weights, read_weights, weights_metadata
from dragoman.training.checkpoints.progress import Progress
from dragoman.training.events import Scores

SNAPSHOT = "snapshot"  # the kind of file


class Snapshots:
    """Files of weights in a run's folder.

    ``Progress``, and so the checkpoint, says which of them count. Only files that a checkpoint
    names, or that were written here, are ever deleted.
    """

    def __init__(self, folder: Path, run: str = "") -> None:
        """``run``: the name of the run, which every file carries."""
        self.folder, self.run = folder / "snapshots", run

    def path(self, update: int) -> Path:
        return self.folder / f"{update:08d}.safetensors"

    def paths(self, progress: Progress) -> list[Path]:
        """Return the files that make the final model, in the order of ``progress.snapshots``."""
        return [self.path(update) for update in kept_updates(progress)]

    def write(self, update: int, weights: Mapping[str, Tensor]) -> None:
        """Write the weights of an update."""
        write_tensors(self.path(update), weights, weights_metadata(SNAPSHOT, self.run, update), own=1)

    def read(self, update: int) -> dict[str, Tensor]:
        """Return the weights of an update; they are verified."""
        return read_weights(self.path(update), SNAPSHOT, self.run, update)

    def delete(self, updates: Iterable[int]) -> None:
        """Delete the files of these updates."""
        delete_files(self.folder, [self.path(update).name for update in updates], own=1)

    def find_damage(self, progress: Progress, shapes: Mapping[str, tuple[int, ...]]) -> dict[int, str]:
        """Return the updates of a progress whose files cannot be used, with what is wrong with them.

        ``shapes``: those of the weights in the checkpoint.
        """
        damage = {}
        for update in kept_updates(progress):
            try:
                weights = self.read(update)
                if {name: tuple(tensor.shape) for name, tensor in weights.items()} != shapes:
                    raise damaged_file(self.path(update), "its tensors are not those of the checkpoint")
            except UserError as error:
                damage[update] = str(error)
        return damage


def kept_updates(progress: Progress) -> list[int]:
    """Return the updates whose weights make the final model."""
    return [int(update) for _, _, update in progress.snapshots]


def average(files: Iterable[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Return the mean of the weights of several files, summed in double precision."""
    total: dict[str, Tensor] = {}
    kinds: dict[str, torch.dtype] = {}
    count = 0
    for weights in files:
        count += 1
        for name, tensor in weights.items():
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
    load_weights(model, average(map(snapshots.read, kept_updates(progress))), snapshots.folder.parent)
    model.eval()
    if validate is None or len(progress.snapshots) == 1:
        return
    with torch.inference_mode():
        mean = validate(model)
    score, negative_loss, update = max(progress.snapshots)
    if score > mean.score and -negative_loss < mean.loss:
        load_weights(model, snapshots.read(int(update)), snapshots.path(int(update)))
