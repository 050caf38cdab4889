"""One update of a model: the gradient of its batches, in parts where memory is short, and the step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from dragoman.data.corpus.batching import Encoded
from dragoman.data.corpus.running import RunningText
from dragoman.data.vocabulary import UNK
from dragoman.errors import UserError
from dragoman.nn.blocks.word_dropout import drop_words
from dragoman.nn.model import Model
from dragoman.process.devices import flush_denormals, pick_device
from dragoman.recipe.training import TrainingConfig, gold_share
from dragoman.training.checkpoints.progress import Progress
from dragoman.training.divergence import record_loss
from dragoman.training.freezing import find_frozen
from dragoman.training.memory import is_out_of_memory, size_of, split
from dragoman.training.meter import Meter
from dragoman.training.objective.distill import Teacher
from dragoman.training.objective.gradient import ShareResult, add_gradient
from dragoman.training.objective.sampling import sample_inputs
from dragoman.training.optim.muon import hidden_matrices
from dragoman.training.optim.optimizer import clipped_step, gradient_norm, make_optimizer
from dragoman.training.optim.schedule import learning_rate
from dragoman.training.parallel.choosing import make_workers
from dragoman.training.parallel.group import join_states
from dragoman.training.parallel.processes import Processes
from dragoman.types import Batch, State


class Updater:
    """Updates one model with batches of one corpus. It knows nothing of epochs, validations and time."""

    def __init__(
        self,
        model: Model,
        data: Encoded | RunningText,
        config: TrainingConfig,
        processes: Processes,
        rare_targets: Tensor | None = None,
        teacher: Teacher | None = None,
    ) -> None:
        """``rare_targets`` (V,): the chance of each token to be hidden in the decoder's inputs.

        ``teacher``: whose probabilities are learnt (``training.distill``).
        """
        self.model, self.data, self.config = model, data, config
        self.processes, self.rare_targets = processes, rare_targets
        self.device = pick_device(config.device)
        model.to(self.device)
        self.teacher = None if teacher is None else teacher.to(self.device)
        self.frozen = find_frozen(model, config.freeze)
        for parameter in self.frozen.parameters:
            parameter.requires_grad_(False)
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.optimizer = make_optimizer(config.optim, self.parameters, hidden_matrices(model))
        self.workers = make_workers(model, config, processes, carries=data.carries)
        self.vocabulary = int(model.decoder.embedding.weight.shape[0])
        self.progress = Progress()
        self.carried: State | None = None  # running text: the decoder's state after the last batch
        self.notes: list[str] = []  # what a person should know, not yet reported
        self._failing: Batch  # the part of a batch that is being computed

    @flush_denormals()
    def update(self, loaded: Sequence[Batch], last_update: int, meter: Meter) -> None:
        """Make one update with the batches that are loaded for it."""
        progress, config = self.progress, self.config
        progress.update += 1
        seed = config.seed * 1_000_003 + progress.update
        if progress.position == 0:  # a new epoch reads its streams from their start
            self.carried = None
        progress.position += len(loaded)
        tokens = sum(batch.tokens for batch in loaded)
        self._set_train_mode()
        share = gold_share(config.sampling, progress.update)
        results: list[ShareResult] = []
        carried = self.carried
        while True:  # until everything fits into memory
            torch.manual_seed(seed)
            try:
                for index, batch in enumerate(loaded):
                    batch = replace(batch.to(self.device), state=self.carried)
                    results += self._add_batch(batch, share, tokens, seed * config.accumulate + index)
                break
            except (MemoryError, RuntimeError) as error:
                self._make_room(error)
                results, self.carried = [], carried
        loss = sum(result.loss for result in results)
        smoothed_loss = sum(result.smoothed_loss for result in results)
        norm = gradient_norm(self.parameters)
        rate = learning_rate(config.optim, progress.update, last_update, progress.reductions)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        if np.isfinite(norm) and np.isfinite(smoothed_loss):
            clipped_step(self.optimizer, norm, config.optim.clip)
            rewards = [result.reward for result in results if result.reward is not None]
            if rewards:
                progress.baseline = config.reinforce.update_baseline(progress.baseline, sum(rewards) / tokens)
        else:
            self._skip_update()
        self.optimizer.zero_grad(set_to_none=True)
        progress.tokens += tokens
        record_loss(progress, loss, self.vocabulary)
        meter.add(loss * tokens, smoothed_loss * tokens, tokens, norm)

    def _skip_update(self) -> None:
        """Leave the weights alone; the gradient is not finite."""
        self.carried = None  # it may not be finite either
        self.progress.skipped += 1

    def _add_batch(
        self, batch: Batch, share: float, tokens: int, seed: int, run: Callable[..., list[ShareResult]] | None = None
    ) -> list[ShareResult]:
        """Add the gradient of a batch, in parts if it would not fit into memory."""
        parts = split(batch, self.progress.largest_batch)
        self.progress.split += len(parts) > 1
        results: list[ShareResult] = []
        states: list[State] = []
        for index, part in enumerate(parts):
            self._failing = part
            shares = self.add_gradients(self._inputs(part, share), tokens, seed + (index << 40), run)
            if self.data.carries:
                states.append(join_states([result.state for result in shares if result.state is not None]))
            results += shares
        if self.data.carries:
            self.carried = join_states(states)
        return results

    def _make_room(self, error: Exception) -> None:
        """Lower the size of the batches after one did not fit into memory; other errors are raised again."""
        if not is_out_of_memory(error):
            raise error
        self.workers.clear()
        if self.processes.count > 1:  # the others are waiting for this one, which cannot tell them
            raise UserError(
                "there is not enough memory for a batch; make batches smaller, for example "
                f"--set training.batch_tokens={max(1, self.config.batch_tokens // 2)}"
            ) from error
        failing, rows = self._failing, len(self._failing.inputs)
        if rows == 1:
            raise UserError(
                f"there is not enough memory for a single row of {failing.inputs.shape[1]} target tokens; "
                "leave out the longest rows (--set max_tokens=…), or choose a smaller model"
            ) from error
        self.progress.largest_batch = max(1, size_of(failing) // 2)
        self.notes.append(
            f"there was not enough memory for a batch of {rows} rows, so batches of its size are split from now on; "
            "--set training.batch_tokens=… makes all batches smaller"
        )

    def add_gradients(
        self, batch: Batch, tokens: int, seed: int, run: Callable[..., list[ShareResult]] | None = None
    ) -> list[ShareResult]:
        """Let the workers compute the gradient of a batch. ``tokens``: those of the whole update."""

        def work(model: Model, share: Batch) -> ShareResult:
            baseline, carries = self.progress.baseline, self.data.carries
            return add_gradient(
                model, share, self.config, tokens=tokens, baseline=baseline, carries=carries, teacher=self.teacher
            )

        return (run or self.workers.run)(work, batch, seed)

    def _set_train_mode(self) -> None:
        self.model.train()
        for module in self.frozen.statistics:
            module.eval()

    def _inputs(self, batch: Batch, share: float) -> Batch:
        """Return the batch with some of the decoder's inputs hidden or replaced by its own."""
        if self.rare_targets is not None:
            batch = replace(batch, inputs=drop_words(batch.inputs, self.rare_targets, UNK))
        return batch if share >= 1 else sample_inputs(self.model, batch, share)

    def measure(self, batches: Sequence[np.ndarray], last_update: int, updates: int = 3) -> float:
        """Return the seconds that an update takes here, measured with some of the batches of an epoch.

        The weights are put back, so training is not changed.
        """
        weights = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        self._set_train_mode()
        share = gold_share(self.config.sampling, last_update)
        times = []
        for rows in batches[: updates + 1]:
            began = time.monotonic()
            batch = self.data.batch(rows).to(self.device)
            try:
                self._add_batch(batch, share, batch.tokens, seed=0, run=self.workers.rehearse)
            except (MemoryError, RuntimeError) as error:
                self._make_room(error)
                continue
            times.append((time.monotonic() - began) / batch.tokens)
        self.optimizer.zero_grad(set_to_none=True)
        self.model.load_state_dict(weights)
        self.carried, self.progress.split = None, 0
        per_token = float(np.median(times[1:] or times or [0.0]))
        return per_token * self.data.tokens / len(batches) * self.config.accumulate * 1.15
