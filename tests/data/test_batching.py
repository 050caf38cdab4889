"""Batches are made by arrays; a plain loop over the rows says what they must be."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.data.corpus.batching import make_batches, padding_share


def divide_row_by_row(order: np.ndarray, sides: np.ndarray, budget: int) -> list[list[int]]:
    """Divide rows into batches, looking at one row after the other."""

    def round_size(rows: int) -> int:
        step = 16 if rows >= 64 else 8 if rows >= 24 else 1
        return rows - rows % step

    batches, begin, longest = [], 0, 0
    for end, length in enumerate(sides.tolist()):
        widest = max(longest, length)
        if end > begin and widest * (end - begin + 1) > budget:
            split = begin + round_size(end - begin)
            widest = int(sides[split : end + 1].max())
            if widest * (end - split + 1) > budget:
                split, widest = end, length
            batches.append(order[begin:split].tolist())
            begin = split
        longest = widest
    return [*batches, order[begin:].tolist()] if begin < len(order) else batches


def share_batch_by_batch(lengths: np.ndarray, batches: Sequence[Sequence[int]]) -> float:
    padded = sum(int(lengths[batch].max()) * len(batch) for batch in batches)
    return 1.0 - float(sum(int(lengths[batch].sum()) for batch in batches)) / max(padded, 1)


def batches_row_by_row(source: np.ndarray, target: np.ndarray, budget: int, seed: int, epoch: int) -> list[list[int]]:
    """Return the batches of an epoch, sorted and divided in the plainest way."""
    generator = np.random.default_rng([seed, epoch])
    among_equals = generator.permutation(len(target))
    longest = np.maximum(source, target)

    def zigzag(values: np.ndarray, within: np.ndarray) -> np.ndarray:
        return np.where(within % 2, -values, values)

    def cost(batches: list[list[int]]) -> float:
        shares = share_batch_by_batch(source, batches), share_batch_by_batch(target, batches)
        return sum(1.0 / max(1.0 - share, 1e-9) for share in shares)

    orders = (
        np.lexsort((among_equals, zigzag(source - target, longest), longest)),
        np.lexsort((among_equals, zigzag(source, target), target)),
    )
    batches = min((divide_row_by_row(order, longest[order], budget) for order in orders), key=cost)
    return [batches[index] for index in generator.permutation(len(batches))]


@settings(max_examples=60, deadline=None)
@given(
    rows=st.integers(1, 400),
    longest=st.sampled_from([1, 3, 40, 90_000]),
    budget=st.sampled_from([1, 30, 500, 4096]),
    has_source=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_batches_are_those_of_a_loop_over_the_rows(
    rows: int, longest: int, budget: int, has_source: bool, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    target = generator.integers(1, longest + 1, rows)
    source = generator.integers(1, longest + 1, rows) if has_source else np.zeros(rows, dtype=np.int64)
    batches = make_batches(source, target, budget, seed=seed, epoch=3)
    assert [batch.tolist() for batch in batches] == batches_row_by_row(source, target, budget, seed, 3)
    assert padding_share(target, batches) == share_batch_by_batch(target, [batch.tolist() for batch in batches])


def test_no_rows_give_no_batches() -> None:
    assert make_batches([], [], 100, seed=1, epoch=0) == []
    assert padding_share([2, 4], [np.array([0, 1])]) == pytest.approx(0.25)
