"""The machine itself: how many multiply-adds per second a large product of two float32 matrices reaches.

It takes its turn like a contender, so its figure is of the same minutes as theirs. Run as a program, it multiplies
until it is stopped and prints multiply-adds per second.
"""

from __future__ import annotations

import sys

from ..job import Contender, Job, Shape
from ..meter import Meter, read_meter

NAME = "GEMM"
SIZE = 2048  # large enough for the full rate, small enough for many products in a round
REPORT_EVERY = 4  # products


def command(job: Job) -> list[str]:
    return [sys.executable, "-m", __name__, job.to_json()]


def contender() -> Contender:
    about = f"float32 products of {SIZE} × {SIZE} matrices"

    def batches(shape: Shape, source_lengths: list[int], target_lengths: list[int]) -> list:  # type: ignore[type-arg]
        return []

    return Contender(NAME, about, command, read_meter, batches, shapes=("transformer",))


def main(job: Job) -> None:
    import torch

    torch.set_num_threads(job.threads)
    torch.manual_seed(job.seed)
    left, right, out = (torch.randn(SIZE, SIZE) for _ in range(3))
    meter = Meter(REPORT_EVERY)
    while True:
        torch.mm(left, right, out=out)
        meter.update(SIZE**3)


if __name__ == "__main__":
    main(Job.from_json(sys.argv[1]))
