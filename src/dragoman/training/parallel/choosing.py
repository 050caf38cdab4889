"""How many shares a run has, and who computes them."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from dragoman.errors import UserError
from dragoman.nn.model import Model
from dragoman.process.devices import available_cores, pick_device
from dragoman.recipe.training import TrainingConfig
from dragoman.training.parallel.exchange import ProcessGroup
from dragoman.training.parallel.group import WorkerGroup
from dragoman.training.parallel.processes import Processes
from dragoman.training.parallel.threads import ThreadGroup


def can_share_rows(model: nn.Module) -> bool:
    """Return whether rows are independent. Batch norm looks across all rows of a batch."""
    return not any(isinstance(module, _BatchNorm) for module in model.modules())


def count_threads(config: TrainingConfig) -> int:
    """Return the number of threads of this process."""
    return config.threads or available_cores()


def count_shares(model: nn.Module, config: TrainingConfig, processes: Processes) -> int:
    """Return the number of shares, which a run keeps, or refuse what cannot be shared.

    By default there is one for each thread of all processes. A GPU has one.
    """
    if can_share_rows(model):
        threads = count_threads(config) if pick_device(config.device).type == "cpu" else 1
        shares = config.shares or threads * processes.count
    elif processes.count > 1 or (config.shares or 1) > 1:
        asked = f"{processes.count} processes" if processes.count > 1 else f"training.shares = {config.shares}"
        raise UserError(
            f"{asked}: this model has batch norm, which looks across all rows of a batch, so its batches cannot be "
            "dealt out; train it in one process with one share, or choose another norm, such as "
            "--set encoder.norm=group for pictures"
        )
    else:
        shares = 1
    if shares < processes.count:
        raise UserError(
            f"{processes.count} processes: this run deals out its batches in {shares} share(s), so no more than "
            f"{shares} process(es) can take part; start fewer, or a new run with --set "
            f"training.shares={processes.count}"
        )
    return shares


def make_workers(model: Model, config: TrainingConfig, processes: Processes, *, carries: bool) -> WorkerGroup:
    """Return the workers that compute the gradient of a batch, and set how torch splits operations.

    ``carries``: the decoder's state goes on from batch to batch.
    """
    shares, threads = count_shares(model, config, processes), count_threads(config)
    # Some sums round by the number of threads, so outside of shares there are as many threads as shares.
    torch.set_num_threads(shares if shares > 1 else threads)
    on_cpu = next(model.parameters()).device.type == "cpu"
    if processes.count > 1:
        return ProcessGroup(model, shares, processes, threads if on_cpu else 1, carries)
    return ThreadGroup(model, shares, threads if on_cpu else 1)
