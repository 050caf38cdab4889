"""The settings of training. They are part of the recipe, so that reading a run loads no trainer."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from dragoman.config import Section


class OptimConfig(Section):
    """The optimizer and its learning rate."""

    kind: Literal["adam", "adamw", "muon"] = "adam"
    """muon: orthogonal steps for matrices, AdamW for all other parameters."""
    learning_rate: float = Field(1e-3, gt=0)
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-9
    weight_decay: float = Field(0.0, ge=0)
    schedule: Literal["constant", "inverse-sqrt", "cosine", "plateau"] = "inverse-sqrt"
    """How the learning rate changes over the updates."""
    warmup: int = Field(100, ge=0)
    """Number of updates in which the learning rate rises from 0 to its full value."""
    final_share: float = Field(0.05, ge=0, le=1)
    """cosine: the share of the learning rate that is left at the end."""
    plateau_factor: float = Field(0.5, gt=0, lt=1)
    """plateau: the learning rate is multiplied by this."""
    plateau_patience: int = Field(2, ge=0)
    """plateau: the number of validations without improvement before the learning rate is reduced."""
    clip: float = Field(1.0, ge=0)
    """Largest norm of the gradient. 0: no clipping."""


class ReinforceConfig(Section):
    """How hard attention (decoder.selection) is trained; other attention ignores these settings."""

    weight: float = Field(1.0, ge=0)
    """Weight of the REINFORCE term beside the cross-entropy."""
    entropy: float = Field(0.05, ge=0)
    """Weight of the entropy bonus, which keeps the choices from settling too early."""
    decay: float = Field(0.9, ge=0, lt=1)
    """Share of the old baseline in the new one."""

    def update_baseline(self, baseline: float | None, reward: float) -> float:
        """Return the baseline after an update whose choices earned ``reward`` on average."""
        return reward if baseline is None else self.decay * baseline + (1 - self.decay) * reward


DEFAULT_K = {"none": 1.0, "linear": 1.0, "exponential": 0.9998, "inverse-sigmoid": 500.0}
DEFAULT_SLOPE = 1e-4


class SamplingConfig(Section):
    """Scheduled sampling: some of the decoder's inputs in training are its own predictions."""

    schedule: Literal["none", "linear", "exponential", "inverse-sigmoid"] = "none"
    """How the share of gold inputs falls."""
    k: float | None = Field(None, gt=0)
    """The paper's k. None: 1 for linear, 0.9998 for exponential, 500 for inverse-sigmoid."""
    slope: float | None = Field(None, gt=0)
    """linear: by how much the share falls at each update. None: 0.0001."""
    floor: float = Field(0.0, ge=0, lt=1)
    """The share does not fall below this."""
    start: int = Field(0, ge=0)
    """Number of updates with gold inputs only, before the schedule begins."""

    @model_validator(mode="after")
    def _check_combination(self) -> SamplingConfig:
        fields = type(self).model_fields
        unused = [
            name
            for name, value in self
            if name != "schedule" and name in self.model_fields_set and value != fields[name].default
        ]
        if self.schedule == "none" and unused:
            raise ValueError(
                f"{unused[0]!r} has no meaning while schedule = 'none'; choose a schedule, or leave it out"
            )
        if self.slope is not None and self.schedule != "linear":
            raise ValueError(f"'slope' belongs to schedule = 'linear', not to {self.schedule!r}")
        if self.schedule == "exponential" and self.offset >= 1:
            raise ValueError(f"exponential: the share is k ** update, so k must be below 1 (got {self.k:g})")
        if self.schedule == "inverse-sigmoid" and self.offset < 1:
            raise ValueError(f"inverse-sigmoid: the share is k / (k + exp(update / k)), k at least 1 (got {self.k:g})")
        return self

    @property
    def offset(self) -> float:
        """Return the paper's k: the one that was set, or the schedule's own."""
        return DEFAULT_K[self.schedule] if self.k is None else self.k

    def describe(self) -> str:
        """Describe the schedule in a sentence; nothing where all inputs are gold."""
        if self.schedule == "none":
            return ""
        shares = ", ".join(
            f"{gold_share(self, update):.0%} at update {update:,}"
            for update in (1, self.start + 1000, self.start + 5000)
        )
        return f"scheduled sampling: {self.schedule}, k = {self.offset:g}; share of gold inputs: {shares}"


def gold_share(config: SamplingConfig, update: int) -> float:
    """Return the probability that an input token is the gold one, at ``update`` (from 1)."""
    i = update - config.start
    if config.schedule == "none" or i <= 0:
        return 1.0
    k = config.offset
    if config.schedule == "linear":
        share = k - (DEFAULT_SLOPE if config.slope is None else config.slope) * i
    elif config.schedule == "exponential":
        share = k**i
    else:
        share = k / (k + math.exp(min(i / k, 700.0)))
    return min(1.0, max(config.floor, share))


def _accept_single_name(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


class DistillConfig(Section):
    """Token-level distillation: the model learns the probabilities that other runs give to each token."""

    teachers: Annotated[tuple[str, ...], BeforeValidator(_accept_single_name)] = ()
    """Folders of runs, whose mean probabilities are learnt. They compute in every update."""
    weight: float = Field(0.5, ge=0, le=1)
    """Share of what the teachers say in the loss. The rest is the usual loss."""
    temperature: float = Field(1.0, gt=0)
    """Above 1, the less likely tokens count more."""


class TrainingConfig(Section):
    """How long to train, in what batches, on what device, and when to stop."""

    optim: OptimConfig = OptimConfig()
    sampling: SamplingConfig = SamplingConfig()
    """Scheduled sampling of the decoder's inputs."""
    freeze: Annotated[tuple[str, ...], BeforeValidator(_accept_single_name)] = ()
    """What is not trained: encoder, decoder, a source or the beginning of a parameter's name."""
    reinforce: ReinforceConfig = ReinforceConfig()
    doubly_stochastic: float = Field(0.0, ge=0)
    """Weight of the penalty that keeps soft attention from overlooking a position."""
    r_drop: float = Field(0.0, ge=0)
    """Weight of R-Drop: how strongly two passes with different dropout must agree. An update then
    takes about twice as long."""
    distill: DistillConfig = DistillConfig()
    ctc: float = Field(0.0, ge=0, lt=1)
    """Share of the CTC loss over the encoder's states in the loss."""
    batch_tokens: int = Field(2048, gt=0)
    """Most tokens of a batch: its number of rows times its longest side."""
    chunk: int = Field(64, gt=0)
    """Running text: tokens of a stream in one batch. Gradients do not reach further back."""
    accumulate: int = Field(1, gt=0)
    """Number of batches per update."""
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    max_updates: int | None = Field(None, gt=0)
    max_epochs: int | None = Field(60, gt=0)
    extend: float = Field(0.0, ge=0, le=4)
    """While the last validation is the best one, training goes on after its last update, at the last
    learning rate, for at most this share of its updates."""
    max_time: float | None = Field(None, gt=0)
    """Seconds of training, over all sessions. The last validation and the evaluation are part of
    them, as far as they can be foreseen."""
    validate_every: int | None = Field(None, gt=0)
    """Number of updates between validations. None: once per epoch."""
    patience: int = Field(10, gt=0)
    """Number of validations without improvement after which training stops."""
    average: int = Field(5, ge=1)
    """Number of snapshots that are averaged into the final weights. 1: the best or the last one
    alone."""
    average_of: Literal["best", "last"] = "best"
    """Which snapshots are averaged."""
    save_every: float = Field(60.0, gt=0)
    """Seconds between checkpoints."""
    log_every: int = Field(20, gt=0)
    """Number of updates between two reports."""
    seed: int = Field(1, ge=0, lt=2**32)
    device: str = "auto"
    autocast: bool = False
    """Compute in bfloat16 where it is safe."""
    shares: int | None = Field(None, gt=0)
    """Number of parts of a batch with random numbers of their own, which threads and processes compute.
    A run keeps it. None: one for each thread of all processes."""
    threads: int | None = Field(None, gt=0)
    """Number of threads of each process. None: one per core."""
    loaders: int | None = Field(None, ge=0)
    """Number of processes that read files ahead. None: 1 or 2 where there are cores to spare."""
    native: bool = True
    """Write model.dragoman at the end, with which the native library answers without torch."""
