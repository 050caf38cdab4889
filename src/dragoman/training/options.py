"""The settings of training."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from dragoman.config import Section
from dragoman.training.optim import OptimConfig
from dragoman.training.reinforce import ReinforceConfig
from dragoman.training.sampling import SamplingConfig


def _one_is_a_list(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


class TrainingConfig(Section):
    optim: OptimConfig = OptimConfig()
    sampling: SamplingConfig = SamplingConfig()  # scheduled sampling of the decoder's inputs
    freeze: Annotated[tuple[str, ...], BeforeValidator(_one_is_a_list)] = ()  # encoder, decoder, a source, a parameter
    reinforce: ReinforceConfig = ReinforceConfig()
    doubly_stochastic: float = Field(0.0, ge=0)  # weight of the term by which soft attention overlooks no place
    ctc: float = Field(0.0, ge=0, lt=1)  # share of CTC over the encoder's states in the loss
    batch_tokens: int = Field(2048, gt=0)  # rows of a batch times its longest side
    chunk: int = Field(64, gt=0)  # running text: tokens of a stream in a batch; gradients do not reach further back
    accumulate: int = Field(1, gt=0)  # batches an update
    label_smoothing: float = Field(0.1, ge=0, lt=1)
    max_updates: int | None = Field(None, gt=0)
    max_epochs: int | None = Field(60, gt=0)
    max_time: float | None = Field(None, gt=0)  # seconds, over all sittings
    validate_every: int | None = Field(None, gt=0)  # updates; None = once an epoch
    patience: int = Field(10, gt=0)  # validations without improvement
    average: int = Field(5, ge=1)  # how many snapshots make the final weights; 1 = the best or last alone
    average_of: Literal["best", "last"] = "best"
    save_every: float = Field(60.0, gt=0)  # seconds between checkpoints
    log_every: int = Field(20, gt=0)  # updates
    seed: int = Field(1, ge=0, lt=2**32)
    device: str = "auto"
    autocast: bool = False  # bfloat16 where it is safe
    threads: int | None = Field(None, gt=0)  # None = every core
    loaders: int | None = Field(None, ge=0)  # processes that read files ahead; None = 1 or 2 where cores are to spare
