"""The weights that make the final model: kept at validations, averaged at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import torch

from dragoman.files import write_tensors
from dragoman.nn.model import Model
from dragoman.training.checkpoint import Progress, average, load_weights, named_weights, read_tensors
from dragoman.training.events import Scores


class Snapshots:
    """Files of weights in a run's folder. Which of them count stands in ``Progress``, and so in the checkpoint."""

    def __init__(self, folder: Path, count: int, which: Literal["best", "last"]) -> None:
        self.folder, self.count, self.which = folder / "snapshots", count, which

    def paths(self, progress: Progress) -> list[Path]:
        return [self._path(int(update)) for _, _, update in progress.snapshots]

    def keep(self, model: Model, progress: Progress, rank: Sequence[float]) -> None:
        """Weights for the average: the n best or the n last. A file goes only when no checkpoint needs it."""
        kept = [*progress.snapshots, [*rank, float(progress.update)]]
        if self.which == "best":
            kept.sort(reverse=True)
        else:
            kept.sort(key=lambda entry: -entry[2])
        progress.snapshots = kept[: self.count]
        if any(entry[2] == progress.update for entry in progress.snapshots):
            write_tensors(self._path(progress.update), named_weights(model))

    def tidy(self, progress: Progress) -> None:
        """What the checkpoint does not name any more goes."""
        needed = set(self.paths(progress))
        for path in self.folder.glob("*.safetensors"):
            if path not in needed:
                path.unlink()

    def settle(self, model: Model, progress: Progress, validate: Callable[[Model], Scores] | None) -> None:
        """Load the final weights: the mean of the snapshots, or one of them alone if ``validate`` finds it better.

        Better means in score and in loss. The snapshots were chosen by their score, so some of it is luck, which their
        mean has not had; but after a short training the mean holds weights that had hardly learnt, and loses in both.
        """
        if not progress.snapshots:
            return
        load_weights(model, average(self.paths(progress)), self.folder.parent)
        model.eval()
        if validate is None or len(progress.snapshots) == 1:
            return
        with torch.inference_mode():
            mean = validate(model)
        score, negative_loss, update = max(progress.snapshots)
        if score > mean.score and -negative_loss < mean.loss:
            path = self._path(int(update))
            load_weights(model, read_tensors(path), path)

    def _path(self, update: int) -> Path:
        return self.folder / f"{update:08d}.safetensors"
