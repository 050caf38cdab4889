"""The split by hash: a partition, the same every time, no source on two sides."""

from __future__ import annotations

import random
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragoman.data.examples import Example, identity
from dragoman.data.splits import FEWEST, position, split
from dragoman.errors import UserError


def corpus(count: int, targets: int = 1) -> list[Example]:
    return [Example({"source": f"word {i // targets}"}, f"target {i}", i + 1, "f") for i in range(count * targets)]


def sources(examples: list[Example]) -> set[object]:
    return {identity(example) for example in examples}


def test_one_file_written_in_two_ways_is_one_source() -> None:
    examples = [
        Example({"source": f"/data/{i}.png"}, "t", 2 * i + turn + 1, "f", {"source": f"{written}{i}.png"})
        for i in range(60)
        for turn, written in enumerate(("", "./x/../"))
    ]
    train, dev, test = split(examples, 0.2, 0.2)
    assert not sources(train) & sources(dev) and not sources(train) & sources(test) and dev and test


@given(st.lists(st.text(max_size=3), min_size=1, max_size=80), st.floats(0, 0.49), st.floats(0, 0.49))
def test_partition_by_source(texts: list[str], dev: float, test: float) -> None:
    examples = [Example({"source": text}, str(i), i + 1, "f") for i, text in enumerate(texts)]
    try:
        sides = split(examples, dev, test)
    except UserError:
        assert len(set(texts)) < FEWEST or dev + test > 0.2
        return
    assert sorted((example for side in sides for example in side), key=lambda one: one.line) == examples
    for side in sides:
        assert [example.line for example in side] == sorted(example.line for example in side)
    names = [sources(side) for side in sides]
    assert not names[0] & names[1] and not names[0] & names[2] and not names[1] & names[2]
    assert names[0] and bool(names[1]) == (dev > 0) and bool(names[2]) == (test > 0)


def test_order_and_other_rows_do_not_matter() -> None:
    small, large = corpus(400), corpus(900)
    before, after = split(small), split(large)
    for side_before, side_after in zip(before, after, strict=True):
        assert sources(side_before) == sources(side_after) & sources(small)
    shuffled = random.Random(1).sample(small, len(small))
    assert [sources(side) for side in split(shuffled)] == [sources(side) for side in before]


def test_growing_past_the_limit_only_gives_back_to_train() -> None:
    small, large = corpus(1000), corpus(5000)
    _, dev, test = split(small, limit=60)
    train_after, dev_after, test_after = split(large, limit=60)
    assert sources(dev) <= sources(dev_after) | sources(train_after)
    assert sources(test) <= sources(test_after) | sources(train_after)
    for side in (dev, test, dev_after, test_after):
        assert 30 < len(side) < 90


def test_shares_are_of_sources_and_targets_stay_together() -> None:
    train, dev, test = split(corpus(5000, targets=2), 0.2, 0.1)
    assert abs(len(sources(dev)) - 1000) < 150 and abs(len(sources(test)) - 500) < 110
    assert len(train) == 2 * len(sources(train)) and len(dev) == 2 * len(sources(dev))


def test_ten_sources_fill_every_side_whatever_the_seed() -> None:
    for seed in range(200):
        train, dev, test = split(corpus(10), 0.1, 0.1, seed=str(seed))
        assert train and dev and test
        train, dev, test = split(corpus(10), 0.1, 0, seed=str(seed))
        assert train and dev and not test


def test_the_test_side_does_not_depend_on_whether_dev_is_held_out() -> None:
    examples = corpus(500)
    assert split(examples, 0.1, 0.1)[2] == split(examples, 0, 0.1)[2]


def test_seed_changes_the_split_and_places_are_stable() -> None:
    examples = corpus(500)
    assert split(examples, seed="a") == split(examples, seed="a") != split(examples, seed="b")
    # A change here would move sources of existing runs from dev to train.
    digest = blake2b(b"8:dragoman4:word", digest_size=8).hexdigest()
    assert position("word", "dragoman") == pytest.approx(int(digest, 16) / 2**64) == pytest.approx(0.4255313750659049)


def test_several_sources_are_one_and_none_is_the_target() -> None:
    pairs = [Example({"b": str(i % 7), "a": str(i % 11)}, "x", i, "f") for i in range(154)]
    sides = [sources(side) for side in split(pairs, 0.2, 0.2)]
    assert sum(map(len, sides)) == 77
    assert position(("ab", "c"), "") != position(("a", "bc"), "") != position("abc", "")
    texts = [Example({}, f"text {i % 50}", i, "f") for i in range(100)]
    assert [len(side) % 2 for side in split(texts)] == [0, 0, 0]


def test_what_cannot_be_split_is_said() -> None:
    with pytest.raises(UserError, match=r"^f: too few to hold some out for dev or test: 9 distinct sources"):
        split(corpus(9))
    with pytest.raises(UserError, match="too few"):
        split([])
    with pytest.raises(UserError, match="below 1"):
        split(corpus(20), 0.5, 0.5)
    assert split(corpus(3), 0, 0) == (corpus(3), [], [])
