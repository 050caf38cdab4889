"""The training loop: a generator of events that can be stopped anywhere and goes on exactly there.

Exactness: the batches of an epoch depend on (seed, epoch) alone, every update seeds the random numbers it uses from
(seed, update), and validation draws none. So weights, optimiser, a few counters and, on running text, the decoder state
that is carried from update to update are the whole state.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dragoman.data.batching import Encoded
from dragoman.data.running import RunningText
from dragoman.errors import UserError
from dragoman.modalities.text import hide_rare
from dragoman.nn.model import Model
from dragoman.training.checkpoint import (
    Progress,
    load_carried,
    load_checkpoint,
    save_checkpoint,
)
from dragoman.training.ctc import summed_ctc
from dragoman.training.events import ENDLESS, Event, Saved, Scores, Started, Stopped, Validated
from dragoman.training.freezing import find_frozen
from dragoman.training.loading import Loading
from dragoman.training.machine import cores, pick_device, tiny_is_zero
from dragoman.training.muon import hidden_matrices
from dragoman.training.objective import check_attention, doubly_stochastic, loss_and_gold
from dragoman.training.optim import clipped_step, gradient_norm, learning_rate, make_optimizer
from dragoman.training.options import TrainingConfig
from dragoman.training.reinforce import surrogate
from dragoman.training.sampling import gold_share, mix
from dragoman.training.shares import Shares, can_share, joined
from dragoman.training.snapshots import Snapshots
from dragoman.training.window import Window
from dragoman.types import Batch, State


class Trainer:
    """One run of training in one folder."""

    def __init__(
        self,
        model: Model,
        data: Encoded | RunningText,
        config: TrainingConfig,
        folder: Path,
        validate: Callable[[Model], Scores],
        rare_targets: Tensor | None = None,
    ) -> None:
        self.model, self.data, self.config, self.folder = model, data, config, folder
        self.validate, self.rare_targets = validate, rare_targets
        self.device = pick_device(config.device)
        self.threads = config.threads or cores()
        torch.set_num_threads(self.threads)
        model.to(self.device)
        check_attention(model.decoder, config)
        self.frozen = find_frozen(model, config.freeze)
        for parameter in self.frozen.parameters:
            parameter.requires_grad_(False)
        self.parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self.optimizer = make_optimizer(config.optim, self.parameters, hidden_matrices(model))
        self.progress = Progress()
        self.carried: State | None = None  # running text: where the streams stand
        self.loading: Loading | None = None  # what the next batches come from, while training runs
        self._known_batches: dict[int, list[np.ndarray]] = {}
        self.checkpoint = folder / "checkpoint.safetensors"
        self.metrics = folder / "metrics.jsonl"
        self.snapshots = Snapshots(folder, config.average, config.average_of)

    def run(self, should_stop: Callable[[], bool] = lambda: False) -> Iterator[Event]:
        """Train to the end, or until ``should_stop``. Yields events; all but ``Saved`` are in ``metrics.jsonl`` too."""
        try:
            yield from self._run(should_stop)
        finally:
            if self.loading is not None:
                self.loading.close()

    def _run(self, should_stop: Callable[[], bool]) -> Iterator[Event]:
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.checkpoint.exists():
            self.progress = load_checkpoint(self.checkpoint, self.model, self.optimizer)
            self.carried = load_carried(self.checkpoint, self.device) if self.data.carries else None
        self._cut_metrics()
        progress, config = self.progress, self.config
        last_update = self.last_update
        batches = self._batches(progress.epoch)
        progress.done = self._reason(last_update) if progress.done else ""  # limits may have been raised since
        if progress.done:
            yield self._log(Stopped(progress.update, progress.done, True, progress.seconds))
            return
        yield self._log(
            Started(
                progress.update,
                last_update,
                len(batches),
                *self.data.padding(batches, (config.seed, progress.epoch)),
            )
        )
        validate_every = config.validate_every or self.updates_an_epoch
        window = Window()
        began = saved_at = time.monotonic()
        seconds_before = progress.seconds

        def clock() -> float:
            return seconds_before + time.monotonic() - began

        self.loading = Loading(self.data, config, self._batches, progress.epoch, progress.position)
        while True:
            self._update(len(batches), last_update, window)
            if progress.position >= len(batches):
                progress.epoch, progress.position = progress.epoch + 1, 0
                batches = self._batches(progress.epoch)
            progress.seconds = clock()
            if progress.update % config.log_every == 0:
                share = gold_share(config.sampling, progress.update)
                yield self._log(window.report(progress, self.optimizer.param_groups[0]["lr"], share))
            ends = progress.update >= last_update or (config.max_time or float("inf")) <= progress.seconds
            if ends or progress.update % validate_every == 0:
                yield self._log(self._validate())
                window.restart()
                progress.seconds = clock()
            reason = self._reason(last_update)
            interrupted = not reason and should_stop()
            progress.done = reason
            if reason or interrupted or time.monotonic() - saved_at > config.save_every:
                progress.seconds = clock()
                self._save()
                saved_at = time.monotonic()
                yield Saved(progress.update)
                window.restart()
            if reason or interrupted:
                yield self._log(Stopped(progress.update, reason or "interrupted", bool(reason), progress.seconds))
                return

    def _reason(self, last_update: int) -> str:
        """Why training is over, or nothing."""
        progress, config = self.progress, self.config
        if progress.update >= last_update:
            return f"{last_update:,} updates done"
        if config.max_time is not None and progress.seconds >= config.max_time:
            return f"time limit of {config.max_time:g} s"
        if progress.waited >= config.patience:
            return f"no better dev score for {config.patience} validations"
        return ""

    @cached_property
    def updates_an_epoch(self) -> int:
        """Of the first: where rows are drawn anew, epochs differ by a few."""
        return -(-len(self._batches(0)) // self.config.accumulate)

    @property
    def last_update(self) -> int:
        limits = [self.config.max_updates, self.config.max_epochs and self.config.max_epochs * self.updates_an_epoch]
        return min((limit for limit in limits if limit), default=ENDLESS)

    def snapshot_paths(self) -> list[Path]:
        """The weights that make the final model, in the order of ``progress.snapshots``."""
        return self.snapshots.paths(self.progress)

    def settle(self, *, compare: bool) -> None:
        """Load the final weights. ``compare``: the mean of the snapshots with the best one alone, on dev."""
        self.snapshots.settle(self.model, self.progress, self.validate if compare else None)

    def measure(self, updates: int = 3) -> float:
        """Seconds an update takes here, tried on copies: training itself is not touched."""
        batches = self._batches(0)
        weights = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        self._train_mode()
        share = gold_share(self.config.sampling, self.last_update)
        times = []
        for rows in batches[: updates + 1]:
            began = time.monotonic()
            batch = self.data.batch(rows).to(self.device)
            self._gradients(self._inputs(batch, share), batch.tokens, seed=0)
            times.append((time.monotonic() - began) / batch.tokens)
        self.optimizer.zero_grad(set_to_none=True)
        self.model.load_state_dict(weights)
        per_token = float(np.median(times[1:] or times))
        return per_token * self.data.tokens / len(batches) * self.config.accumulate * 1.15

    def _batches(self, epoch: int) -> list[np.ndarray]:
        """Asked for by the one who counts them and the one who reads them, which may be an epoch ahead."""
        if epoch not in self._known_batches:
            found = self.data.batches(self.config.batch_tokens, seed=self.config.seed, epoch=epoch, varied=True)
            self._known_batches = {e: kept for e, kept in self._known_batches.items() if e >= epoch - 1}
            self._known_batches[epoch] = found
        return self._known_batches[epoch]

    @tiny_is_zero()
    def _update(self, batches: int, last_update: int, window: Window) -> None:
        progress, config = self.progress, self.config
        progress.update += 1
        seed = config.seed * 1_000_003 + progress.update
        torch.manual_seed(seed)
        if progress.position == 0:  # a new epoch reads its streams from their start
            self.carried = None
        assert self.loading is not None
        loaded = self.loading.take(min(config.accumulate, batches - progress.position))
        progress.position += len(loaded)
        tokens = sum(batch.tokens for batch in loaded)
        self._train_mode()
        share = gold_share(config.sampling, progress.update)
        learnt: list[_Learnt] = []
        for index, batch in enumerate(loaded):
            batch = replace(batch.to(self.device), state=self.carried)
            found = self._gradients(self._inputs(batch, share), tokens, seed * config.accumulate + index)
            if self.data.carries:
                self.carried = joined([one.state for one in found if one.state is not None])
            learnt += found
        total = sum(one.loss for one in learnt)
        rewards = [one.reward for one in learnt if one.reward is not None]
        norm = gradient_norm(self.parameters)
        rate = learning_rate(config.optim, progress.update, last_update, progress.reductions)
        for options in self.optimizer.param_groups:
            options["lr"] = rate
        if np.isfinite(norm) and np.isfinite(total):
            clipped_step(self.optimizer, norm, config.optim.clip)
            if rewards:
                progress.baseline = config.reinforce.moved(progress.baseline, sum(rewards) / tokens)
        else:
            self.carried = None  # it may not be finite either
            progress.skipped += 1
            if progress.skipped > 20:
                raise UserError(
                    f"the gradient was not finite in {progress.skipped} updates (the last one: {progress.update}); "
                    "lower the learning rate, for example --set training.optim.learning_rate=0.0003"
                )
        self.optimizer.zero_grad(set_to_none=True)
        progress.tokens += tokens
        window.add(total * tokens, tokens, norm)

    def _gradients(self, batch: Batch, tokens: int, seed: int) -> list[_Learnt]:
        if self._shares is None or not self._shares.can_take(batch):
            return [self._learn(self.model, batch, tokens)]
        return self._shares.run(lambda model, part: self._learn(model, part, tokens), batch, seed)

    @tiny_is_zero()  # here too: each thread has its own arithmetic
    def _learn(self, model: Model, batch: Batch, tokens: int) -> _Learnt:
        """Leave the gradient of the loss an update's token in the model's parameters."""
        config, baseline = self.config, self.progress.baseline
        with torch.autocast(self.device.type, torch.bfloat16, enabled=config.autocast):
            memory = model.encode(batch.sources) if config.doubly_stochastic or config.ctc else None
            step = model.teach(batch, memory, need_attention=config.doubly_stochastic > 0)
            loss, gold = loss_and_gold(step, batch, config.label_smoothing, scale=1 / tokens)
        value, reward = loss.item(), None
        if step.choices is not None:
            reward = float(gold.sum())
            expected = reward / batch.tokens if baseline is None else baseline
            loss = loss + surrogate(step.choices, batch.mask, gold, expected, config.reinforce) / tokens
        if memory is not None and step.attention is not None:
            spread = doubly_stochastic(step.attention, batch.mask, memory.mask)
            loss = loss + config.doubly_stochastic * spread / tokens
        if memory is not None and config.ctc:
            loss = (1 - config.ctc) * loss + config.ctc * summed_ctc(model, memory, batch) / tokens
        loss.backward()
        return _Learnt(value, reward, step.state.detach() if self.data.carries else None)

    @cached_property
    def _shares(self) -> Shares | None:
        """None: batches stay whole."""
        if self.threads == 1 or self.device.type != "cpu" or not can_share(self.model):
            return None
        return Shares(self.model, self.threads)

    def _train_mode(self) -> None:
        self.model.train()
        for module in self.frozen.statistics:
            module.eval()

    def _inputs(self, batch: Batch, share: float) -> Batch:
        """What the decoder is fed: the gold tokens, rare ones hidden now and then, some replaced by its own."""
        if self.rare_targets is not None:
            batch = replace(batch, inputs=hide_rare(batch.inputs, self.rare_targets))
        return batch if share >= 1 else mix(self.model, batch, share)

    def _validate(self) -> Validated:
        progress, config = self.progress, self.config
        self.model.eval()
        with torch.inference_mode():
            scores = self.validate(self.model)
        rank = [scores.score, -scores.loss]
        best = not progress.best or rank > progress.best
        if best:
            progress.best, progress.best_update = rank, progress.update
            progress.waited = progress.waited_plateau = 0
        else:
            progress.waited += 1
            progress.waited_plateau += 1
            if progress.waited_plateau > config.optim.plateau_patience:
                progress.reductions += 1
                progress.waited_plateau = 0
        self.snapshots.keep(self.model, progress, rank)
        return Validated(
            progress.update, progress.epoch, scores.loss, scores.score, scores.metric, best, progress.seconds,
            dict(scores.details),
        )  # fmt: skip

    def _save(self) -> None:
        self.progress.metrics_bytes = self.metrics.stat().st_size if self.metrics.exists() else 0
        save_checkpoint(self.checkpoint, self.model, self.optimizer, self.progress, self.carried)
        self.snapshots.tidy(self.progress)

    def _log(self, event: Event) -> Event:
        line = json.dumps({"event": type(event).__name__.lower(), **asdict(event)}, ensure_ascii=False)
        with open(self.metrics, "a", encoding="utf-8") as file:
            file.write(line + "\n")
        return event

    def _cut_metrics(self) -> None:
        """Drop the lines that were written after the checkpoint: those updates are done again."""
        if self.metrics.exists():
            os.truncate(self.metrics, min(self.progress.metrics_bytes, self.metrics.stat().st_size))


@dataclass(frozen=True, slots=True)
class _Learnt:
    loss: float  # a token of the update
    reward: float | None  # of hard attention's choices, summed
    state: State | None  # behind the batch, where it is carried on
