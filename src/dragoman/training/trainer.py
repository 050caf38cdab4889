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
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dragoman.data.corpus.batching import Encoded
from dragoman.data.corpus.running import RunningText
from dragoman.inference.steps import SearchCancelled
from dragoman.nn.model import Model
from dragoman.recipe.training import TrainingConfig, gold_share
from dragoman.runs.weights import named_weights
from dragoman.training.checkpoints.checkpoint import Checkpoint
from dragoman.training.checkpoints.progress import Progress
from dragoman.training.divergence import find_divergence
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
from dragoman.training.loading import BatchLoader
from dragoman.training.meter import Meter
from dragoman.training.objective.distill import Teacher
from dragoman.training.parallel.processes import Processes
from dragoman.training.updating import Updater


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
        teacher: Teacher | None = None,
    ) -> None:
        """``rare_targets`` (V,): the chance of each token to be hidden in the decoder's inputs.

        ``ending``: the work after the last update, which a time limit is to cover. ``processes``:
        those that train together; each has a trainer of its own, which yields the same events. Only
        the first process validates. ``teacher``: whose probabilities are learnt (``training.distill``).
        """
        self.model, self.data, self.config, self.ending = model, data, config, ending or Ending()
        self.validate = validate
        self.processes = processes or Processes()
        self.updater = Updater(model, data, config, self.processes, rare_targets, teacher)
        if resume is not None:
            self.updater.progress = resume.restore(model, self.updater.optimizer)
            self.updater.carried = resume.carried(self.device) if data.carries else None
            self.updater.notes += resume.notes
        self._take_weights_of_first()
        self.loader: BatchLoader | None = None  # where the next batches come from, while training runs
        self._known_batches: dict[int, list[np.ndarray]] = {}

    @property
    def progress(self) -> Progress:
        """How far training is."""
        return self.updater.progress

    @property
    def device(self) -> torch.device:
        """Where the model is trained."""
        return self.updater.device

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
        ending = self.ending.tokens, self.ending.validations
        yield Started(progress.update, last_update, len(batches), *padding, config.max_time, *ending)
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
                loaded = self.loader.take(min(config.accumulate, len(batches) - progress.position))
                self.updater.update(loaded, last_update, meter)
                if progress.position >= len(batches):
                    progress.epoch, progress.position = progress.epoch + 1, 0
                    batches = self._batches(progress.epoch)
                progress.seconds = clock()
                if self._is_time_over():
                    progress.time_limit = config.max_time or 0.0
                ends = progress.update in (last_update, self.bound) or progress.update > self.bound
                ends = ends or progress.time_limit > 0
                if ends or progress.update % config.log_every == 0:
                    yield self._report(meter)
                validates = ends or progress.update % validate_every == 0
                is_new_limit = bool(self.updater.notes)  # saved at once: a run that is resumed splits the same batches
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
            progress.diverged = find_divergence(progress, self.updater.vocabulary, warmup, ends=bool(reason))
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
                    checkpoint = Checkpoint.capture(self.model, self.updater.optimizer, progress, self.updater.carried)
                    yield CheckpointDue(progress.update, checkpoint)
                    saved_at = time.monotonic()
            if reason or interrupted or progress.diverged:
                why = progress.diverged or reason or (PAUSED if pauses else "interrupted")
                yield Stopped(progress.update, why, bool(reason), progress.seconds, bool(progress.diverged))
                return

    def _warnings(self) -> Iterator[Event]:
        """Yield what a person should know."""
        notes, self.updater.notes = self.updater.notes, []
        for note in notes:
            yield Warned(self.progress.update, note)

    def _report(self, meter: Meter) -> Stepped:
        """Sum up the updates since the last report."""
        share = gold_share(self.config.sampling, self.progress.update)
        return meter.report(self.progress, self.updater.optimizer.param_groups[0]["lr"], share)

    def _take_weights_of_first(self) -> None:
        """Let all processes go on with the weights and the optimizer's state of the first one.

        They have them already, unless their processors round differently. What a checkpoint saves
        is then what all of them go on with.
        """
        if self.processes.count > 1:
            states = (self.updater.optimizer.state.get(parameter, {}) for parameter in self.updater.parameters)
            moments = [state[name] for state in states for name in sorted(state)]
            self.processes.pass_tensors([*self.model.parameters(), *self.model.buffers(), *moments])

    def _reason_to_stop(self, last_update: int) -> str:
        """Return why training is over, or nothing while it is not."""
        progress, config = self.progress, self.config
        if progress.update >= self.bound or (progress.update >= last_update and progress.waited):
            return f"{progress.update:,} updates done"
        if config.max_time is not None and (progress.time_limit >= config.max_time or self._is_time_over()):
            return f"time limit of {config.max_time:g} s"
        if progress.waited >= config.patience:
            return f"no better dev score for {config.patience} validations"
        return ""

    def _is_time_over(self) -> bool:
        """Return whether the time limit ends training. All processes agree, though their clocks may not."""
        limit = self.config.max_time
        return limit is not None and bool(self.processes.agree(self.ending.is_due(self.progress, limit))[0])

    @property
    def updates_per_epoch(self) -> int:
        """Return the updates of the first epoch.

        Where training varies the rows' lengths, epochs differ a little. The number is kept with the
        progress: dividing many rows into batches takes seconds, and a run that is resumed in a later
        epoch does not need those of the first.
        """
        if not self.progress.epoch_updates:
            self.progress.epoch_updates = -(-len(self._batches(0)) // self.config.accumulate)
        return self.progress.epoch_updates

    @property
    def last_update(self) -> int:
        limits = [self.config.max_updates, self.config.max_epochs and self.config.max_epochs * self.updates_per_epoch]
        return min((limit for limit in limits if limit), default=ENDLESS)

    @property
    def bound(self) -> int:
        """The update after which training ends even if dev still rises (``training.extend``)."""
        return self.last_update + int(self.config.extend * min(self.last_update, ENDLESS // 8))

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
        """Return the seconds that an update takes here; training is not changed."""
        return self.updater.measure(self._batches(0), self.last_update, updates)

    def _batches(self, epoch: int) -> list[np.ndarray]:
        """Return the rows of each batch of an epoch.

        Counting them and reading them may be an epoch apart.
        """
        if epoch not in self._known_batches:
            batches = self.data.batches(self.config.batch_tokens, seed=self.config.seed, epoch=epoch, varied=True)
            self._known_batches = {e: known for e, known in self._known_batches.items() if e >= epoch - 1}
            self._known_batches[epoch] = batches
        return self._known_batches[epoch]

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
