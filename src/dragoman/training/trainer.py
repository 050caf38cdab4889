"""The training loop: a generator of events that can be stopped anywhere and resumes exactly there.

It computes and reports; it writes no file. Exactness: the batches of an epoch depend on (seed,
epoch) alone, every update seeds the random numbers it uses from (seed, update), and validation
draws none. So the weights, the optimizer, a few counters and, on running text, the decoder state
that is carried from update to update are the whole state.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dragoman.data.corpus.batching import Encoded
from dragoman.data.corpus.running import RunningText
from dragoman.data.vocabulary import UNK
from dragoman.errors import UserError
from dragoman.inference.steps import SearchCancelled
from dragoman.nn.blocks.word_dropout import drop_words
from dragoman.nn.model import Model
from dragoman.process.devices import flush_denormals, pick_device
from dragoman.recipe.training import TrainingConfig, gold_share
from dragoman.runs.weights import named_weights
from dragoman.training.checkpoints.checkpoint import Checkpoint
from dragoman.training.checkpoints.progress import Progress
from dragoman.training.divergence import find_divergence, record_loss
from dragoman.training.events import (
    ENDLESS,
    PAUSED,
    CheckpointDue,
    Event,
    Scores,
    SnapshotDue,
    Started,
    Stepped,
    Stopped,
    Validated,
    Warned,
)
from dragoman.training.forecast import Ending, Forecast
from dragoman.training.freezing import find_frozen
from dragoman.training.loading import BatchLoader
from dragoman.training.memory import is_out_of_memory, size_of, split
from dragoman.training.meter import Meter
from dragoman.training.objective.gradient import ShareResult, add_gradient
from dragoman.training.objective.sampling import sample_inputs
from dragoman.training.optim.muon import hidden_matrices
from dragoman.training.optim.optimizer import clipped_step, gradient_norm, make_optimizer
from dragoman.training.optim.schedule import learning_rate
from dragoman.training.parallel.choosing import make_workers
from dragoman.training.parallel.group import join_states
from dragoman.training.parallel.processes import Processes
from dragoman.types import Batch, State


class Trainer:
    """Trains one model on one corpus."""

    def __init__(
        self,
        model: Model,
        data: Encoded | RunningText,
        config: TrainingConfig,
        validate: Callable[[Model], Scores],
        rare_targets: Tensor | None = None,
        resume: Checkpoint | None = None,
        ending: Ending | None = None,
        processes: Processes | None = None,
    ) -> None:
        """``rare_targets`` (V,): the chance of each token to be hidden in the decoder's inputs.

        ``ending``: the work after the last update, which a time limit is to cover. ``processes``:
        those that train together; each has a trainer of its own, which yields the same events. Only
        the first process validates.
        """
        self.model, self.data, self.config, self.ending = model, data, config, ending or Ending()
        self.validate, self.rare_targets = validate, rare_targets
        self.device = pick_device(config.device)
        self.processes = processes or Processes()
        model.to(self.device)
        self.frozen = find_frozen(model, config.freeze)
        for parameter in self.frozen.parameters:
            parameter.requires_grad_(False)
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.optimizer = make_optimizer(config.optim, self.parameters, hidden_matrices(model))
        self.workers = make_workers(model, config, self.processes, carries=data.carries)
        self.progress = Progress()
        self.carried: State | None = None  # running text: the decoder's state after the last batch
        if resume is not None:
            self.progress = resume.restore(model, self.optimizer)
            self.carried = resume.carried(self.device) if data.carries else None
        self._take_weights_of_first()
        self.loader: BatchLoader | None = None  # where the next batches come from, while training runs
        self.vocabulary = int(model.decoder.embedding.weight.shape[0])
        self.notes = [] if resume is None else list(resume.notes)  # what a person should know, not yet reported
        self._failing: Batch  # the part of a batch that is being computed
        self._known_batches: dict[int, list[np.ndarray]] = {}

    def run(self, should_stop: Callable[[], bool] = lambda: False, pause_at: int | None = None) -> Iterator[Event]:
        """Train to the end, or until ``should_stop``, and yield what happens.

        At the update ``pause_at`` training is interrupted as if it had been asked to stop, after a
        validation that changes nothing in the run.
        """
        try:
            yield from self._run(should_stop, ENDLESS if pause_at is None else pause_at)
        finally:
            if self.loader is not None:
                self.loader.close()

    def _run(self, should_stop: Callable[[], bool], pause_at: int) -> Iterator[Event]:
        progress, config = self.progress, self.config
        last_update = self.last_update
        batches = self._batches(progress.epoch)
        if progress.time_limit < (config.max_time or ENDLESS):  # limits may have been raised since
            progress.time_limit = 0.0
        progress.done = self._reason_to_stop(last_update) if progress.done else ""
        if progress.done or progress.diverged:
            is_diverged = bool(progress.diverged)
            reason = progress.diverged or progress.done
            yield Stopped(progress.update, reason, not is_diverged, progress.seconds, is_diverged)
            return
        if progress.update >= pause_at:
            yield Stopped(progress.update, PAUSED, False, progress.seconds)
            return
        padding = self.data.padding(batches, (config.seed, progress.epoch))
        yield Started(progress.update, last_update, len(batches), *padding)
        yield from self._warnings()
        validate_every = config.validate_every or self.updates_per_epoch
        meter = Meter(progress.window)
        began = saved_at = time.monotonic()
        seconds_before = progress.seconds

        def clock() -> float:
            return seconds_before + time.monotonic() - began

        self.loader = BatchLoader(self.data, config, self._batches, progress.epoch, progress.position)
        while True:
            is_new_limit = False
            validates = progress.unvalidated  # the validation was interrupted before the run was resumed
            if not validates:
                self._update(len(batches), last_update, meter)
                if progress.position >= len(batches):
                    progress.epoch, progress.position = progress.epoch + 1, 0
                    batches = self._batches(progress.epoch)
                progress.seconds = clock()
                if self._is_time_over():
                    progress.time_limit = config.max_time or 0.0
                ends = progress.update >= last_update or progress.time_limit > 0
                if ends or progress.update % config.log_every == 0:
                    yield self._report(meter)
                validates = ends or progress.update % validate_every == 0
                is_new_limit = bool(self.notes)  # saved at once: a run that is resumed splits the same batches
                yield from self._warnings()
            if validates:
                began_validation = time.monotonic()
                with meter.paused():
                    yield from self._validate()
                progress.validation_seconds = time.monotonic() - began_validation
                progress.seconds = clock()
            reason = "" if progress.unvalidated else self._reason_to_stop(last_update)
            if reason and progress.window.updates:  # patience ended: the last window is a shorter one
                yield self._report(meter)
            warmup = config.optim.warmup
            progress.diverged = find_divergence(progress, self.vocabulary, warmup, ends=bool(reason))
            reason = "" if progress.diverged else reason
            pauses = not reason and progress.update >= pause_at
            if pauses and not validates:
                with meter.paused(), suppress(SearchCancelled):
                    yield self._validated(self._measure_dev(), best=False)
            stops = not reason and (pauses or should_stop())
            is_due = time.monotonic() - saved_at > config.save_every
            interrupted, is_due = map(bool, self.processes.agree(stops, is_due))
            progress.done = reason
            if reason or interrupted or is_due or is_new_limit or progress.diverged:
                with meter.paused():
                    progress.seconds = clock()
                    self._take_weights_of_first()
                    checkpoint = Checkpoint.capture(self.model, self.optimizer, progress, self.carried)
                    yield CheckpointDue(progress.update, checkpoint)
                    saved_at = time.monotonic()
            if reason or interrupted or progress.diverged:
                why = progress.diverged or reason or (PAUSED if pauses else "interrupted")
                yield Stopped(progress.update, why, bool(reason), progress.seconds, bool(progress.diverged))
                return

    def _warnings(self) -> Iterator[Event]:
        """Yield what a person should know."""
        notes, self.notes = self.notes, []
        for note in notes:
            yield Warned(self.progress.update, note)

    def _report(self, meter: Meter) -> Stepped:
        """Sum up the updates since the last report."""
        share = gold_share(self.config.sampling, self.progress.update)
        return meter.report(self.progress, self.optimizer.param_groups[0]["lr"], share)

    def _take_weights_of_first(self) -> None:
        """Let all processes go on with the weights and the optimizer's state of the first one.

        They have them already, unless their processors round differently. What a checkpoint saves
        is then what all of them go on with.
        """
        if self.processes.count > 1:
            states = (self.optimizer.state.get(parameter, {}) for parameter in self.parameters)
            moments = [state[name] for state in states for name in sorted(state)]
            self.processes.pass_tensors([*self.model.parameters(), *self.model.buffers(), *moments])

    def _reason_to_stop(self, last_update: int) -> str:
        """Return why training is over, or nothing while it is not."""
        progress, config = self.progress, self.config
        if progress.update >= last_update:
            return f"{last_update:,} updates done"
        if config.max_time is not None and (progress.time_limit >= config.max_time or self._is_time_over()):
            return f"time limit of {config.max_time:g} s"
        if progress.waited >= config.patience:
            return f"no better dev score for {config.patience} validations"
        return ""

    def _is_time_over(self) -> bool:
        """Return whether the time limit ends training. All processes agree, though their clocks may not."""
        limit = self.config.max_time
        return limit is not None and bool(self.processes.agree(self.ending.is_due(self.progress, limit))[0])

    @cached_property
    def updates_per_epoch(self) -> int:
        """Return the updates of the first epoch.

        Where training varies the rows' lengths, epochs differ a little.
        """
        return -(-len(self._batches(0)) // self.config.accumulate)

    @property
    def last_update(self) -> int:
        limits = [self.config.max_updates, self.config.max_epochs and self.config.max_epochs * self.updates_per_epoch]
        return min((limit for limit in limits if limit), default=ENDLESS)

    def forecast(self) -> Forecast:
        """Measure the speed and forecast how long training takes from here on."""
        progress, limit = self.progress, self.config.max_time
        per_update = self.measure()
        per_token = per_update * self.updates_per_epoch / max(self.data.tokens, 1)
        return Forecast(
            per_update,
            self.last_update - progress.update,
            self.ending.seconds(progress.validation_seconds, per_token),
            limit and max(0.0, limit - progress.seconds),
        )

    def measure(self, updates: int = 3) -> float:
        """Return the seconds that an update takes here.

        The weights are put back, so training is not changed.
        """
        batches = self._batches(0)
        weights = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        self._train_mode()
        share = gold_share(self.config.sampling, self.last_update)
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

    def _batches(self, epoch: int) -> list[np.ndarray]:
        """Return the rows of each batch of an epoch.

        Counting them and reading them may be an epoch apart.
        """
        if epoch not in self._known_batches:
            batches = self.data.batches(self.config.batch_tokens, seed=self.config.seed, epoch=epoch, varied=True)
            self._known_batches = {e: known for e, known in self._known_batches.items() if e >= epoch - 1}
            self._known_batches[epoch] = batches
        return self._known_batches[epoch]

    @flush_denormals()
    def _update(self, batches: int, last_update: int, meter: Meter) -> None:
        progress, config = self.progress, self.config
        progress.update += 1
        seed = config.seed * 1_000_003 + progress.update
        if progress.position == 0:  # a new epoch reads its streams from their start
            self.carried = None
        assert self.loader is not None
        loaded = self.loader.take(min(config.accumulate, batches - progress.position))
        progress.position += len(loaded)
        tokens = sum(batch.tokens for batch in loaded)
        self._train_mode()
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
            shares = self._add_gradients(self._inputs(part, share), tokens, seed + (index << 40), run)
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

    def _add_gradients(
        self, batch: Batch, tokens: int, seed: int, run: Callable[..., list[ShareResult]] | None = None
    ) -> list[ShareResult]:
        """Let the workers compute the gradient of a batch. ``tokens``: those of the whole update."""

        def work(model: Model, share: Batch) -> ShareResult:
            baseline, carries = self.progress.baseline, self.data.carries
            return add_gradient(model, share, self.config, tokens=tokens, baseline=baseline, carries=carries)

        return (run or self.workers.run)(work, batch, seed)

    def _train_mode(self) -> None:
        self.model.train()
        for module in self.frozen.statistics:
            module.eval()

    def _inputs(self, batch: Batch, share: float) -> Batch:
        """Return the batch with some of the decoder's inputs hidden or replaced by its own."""
        if self.rare_targets is not None:
            batch = replace(batch, inputs=drop_words(batch.inputs, self.rare_targets, UNK))
        return batch if share >= 1 else sample_inputs(self.model, batch, share)

    def _validate(self) -> Iterator[Event]:
        progress, config = self.progress, self.config
        progress.unvalidated = True
        try:
            scores = self._measure_dev()
        except SearchCancelled:
            return
        progress.unvalidated = False
        rank = [scores.score, -scores.loss]
        best = progress.record_validation(rank, config.optim.plateau_patience)
        if progress.above == 0 and progress.record_snapshot(rank, config.average, config.average_of):
            yield SnapshotDue(progress.update, named_weights(self.model))
        yield self._validated(scores, best)

    def _measure_dev(self) -> Scores:
        """Return the scores on dev, which the first process measures for all."""
        self.model.eval()
        with torch.inference_mode():
            scores = self.processes.on_first(self._measure)
        if scores is None:
            raise SearchCancelled("the validation was interrupted")
        return Scores(**scores)

    def _measure(self) -> dict[str, Any] | None:
        """Return the scores as plain values; None: the validation was interrupted."""
        try:
            return asdict(self.validate(self.model))
        except SearchCancelled:
            return None

    def _validated(self, scores: Scores, best: bool) -> Validated:
        progress, details = self.progress, dict(scores.details)
        place = progress.update, progress.epoch
        return Validated(*place, scores.loss, scores.score, scores.metric, best, progress.seconds, details)
