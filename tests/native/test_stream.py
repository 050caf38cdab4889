"""A search that is fed while it runs: no result depends on who else is in it, and nothing is lost or left behind."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from native_programs import BOS, EOS, PROGRAMS, VOCABULARY, make_attentive, make_sources

from dragoman.errors import UserError
from dragoman.program.native import NativeProgram, available_kernels
from dragoman.runtime.search import NativeResult
from dragoman.runtime.stream import SearchStream, StreamedSource
from dragoman.search.options import SearchConfig

needs_library = pytest.mark.skipif(
    not available_kernels(), reason="the native library is not built; `make native` builds it"
)
pytestmark = needs_library

COUNT = 24
CASES: dict[str, dict[str, Any]] = {
    "beam": {"beam": 4, "n_best": 2},
    "greedy": {"beam": 1},
    "certain": {"beam": 3, "stop": "certain"},
    "sample": {"sample": True, "samples": 3, "seed": 7},
    "only": {"beam": 3, "only": ((5, 6, 7), (60, 61), (9,))},
}


def make_entries(seed: int = 1) -> list[StreamedSource]:
    prefixes: list[tuple[int, ...]] = [(), (), (5,), (5, 6), (30, EOS)]
    generator = random.Random(seed)
    return [
        StreamedSource(source, generator.randint(2, 15), generator.choice(prefixes), 100 + index)
        for index, source in enumerate(make_sources(COUNT))
    ]


def search_together(runner: NativeProgram, config: SearchConfig, entries: list[StreamedSource]) -> list[NativeResult]:
    arrays, limits, prefixes, keys = map(list, zip(*entries, strict=True))
    return runner.search(
        arrays, config, bos=BOS, eos=EOS, limits=limits, prefixes=prefixes, keys=keys, attention=True, trace=True
    )


def assert_identical(one: NativeResult, other: NativeResult) -> None:
    """Two results have the same bits."""
    assert len(one.hypotheses) == len(other.hypotheses) and len(one.steps) == len(other.steps)
    pairs: list[tuple[Any, Any]] = [*zip(one.hypotheses, other.hypotheses, strict=True)]
    for a, b in [*pairs, *zip(one.steps, other.steps, strict=True)]:
        for name in a.__slots__:
            left, right = getattr(a, name), getattr(b, name)
            assert np.array_equal(left, right) if isinstance(left, np.ndarray) else left == right, name


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_sources_that_come_and_go_at_any_time_have_the_results_of_a_search(name: str, case: str) -> None:
    runner, config, entries = NativeProgram(PROGRAMS[name]()), SearchConfig(**CASES[case]), make_entries()
    expected = search_together(runner, config, entries)
    generator = random.Random(len(name) + len(case))
    options: dict[str, Any] = {"attention": True, "trace": True, "batch_size": generator.randint(1, 6)}
    with runner.stream(config, bos=BOS, eos=EOS, **options) as stream:
        waiting, numbers = list(range(COUNT)), dict[int, int]()
        found, dropped = dict[int, NativeResult](), set[int]()
        while waiting or len(stream):
            some = waiting[: min(generator.randint(0, 3), stream.room)]
            numbers |= zip(stream.add([entries[index] for index in some]), some, strict=True)
            waiting = waiting[len(some) :]
            if numbers and len(dropped) < 5 and generator.random() < 0.2:  # somebody goes away
                number = generator.choice(list(numbers))
                stream.drop(number)
                dropped.add(numbers.pop(number))
            stream.advance()
            for number, result in stream.take():
                found[numbers.pop(number)] = result
    assert not numbers and {*found} | dropped == {*range(COUNT)} and not {*found} & dropped
    assert dropped
    for index, result in found.items():
        assert_identical(expected[index], result)


def test_the_results_of_a_search_are_those_of_one_source_alone() -> None:
    runner, config, entries = NativeProgram(make_attentive()), SearchConfig(**CASES["beam"]), make_entries()
    together = search_together(runner, config, entries)
    for entry, result in zip(entries, together, strict=True):
        assert_identical(search_together(runner, config, [entry])[0], result)


def test_a_short_source_that_comes_later_is_done_before_a_long_one() -> None:
    runner = NativeProgram(make_attentive())
    config = SearchConfig(beam=2, min_length=40, max_length=60)
    source = make_sources(1)[0]
    with runner.stream(config, bos=BOS, eos=EOS) as stream:
        (long,) = stream.add([StreamedSource(source, 60)])
        for _ in range(5):
            stream.advance()
        (short,) = stream.add([StreamedSource(source, 3)])
        order: list[int] = []
        while len(stream):
            stream.advance()
            order += [number for number, _ in stream.take()]
    assert order == [short, long]


def run_to_the_end(stream: SearchStream) -> list[int]:
    done: list[int] = []
    while len(stream):
        stream.advance()
        done += [number for number, _ in stream.take()]
    return done


def test_a_source_that_cannot_be_added_disturbs_no_other() -> None:
    runner = NativeProgram(make_attentive())
    good, limit = make_sources(1)[0], 6
    bad = {name: np.full_like(array, 10**6) for name, array in good.items()}
    with runner.stream(SearchConfig(beam=2), bos=BOS, eos=EOS, batch_size=4) as stream:
        (first,) = stream.add([StreamedSource(good, limit)])
        stream.advance()
        room = stream.room
        for refused, words in (
            (StreamedSource(bad, limit), "does not know"),
            (StreamedSource(good, 0), "needs a length limit"),
            (StreamedSource(good, -1), "impossible"),
            (StreamedSource(good, limit, (VOCABULARY,)), "there is no token"),
            (StreamedSource(good, limit, (-1,)), "there is no token"),
            (StreamedSource(good, limit, (EOS, 5)), "goes on after the end symbol"),
        ):
            with pytest.raises(UserError, match=words):
                stream.add([StreamedSource(good, limit), refused])
            assert stream.room == room and len(stream) == 1
        with pytest.raises(UserError, match="no room"):
            stream.add([StreamedSource(good, limit)] * (room + 1))
        (second,) = stream.add([StreamedSource(good, limit)])
        assert sorted(run_to_the_end(stream)) == [first, second]


def test_what_is_dropped_has_no_result_and_frees_its_place() -> None:
    runner, source = NativeProgram(make_attentive()), make_sources(1)[0]
    with runner.stream(SearchConfig(beam=2, min_length=3), bos=BOS, eos=EOS, batch_size=2) as stream:
        room = stream.room
        numbers = stream.add([StreamedSource(source, 9)] * room)
        assert stream.room == 0
        stream.advance()
        stream.drop(numbers[0])  # in flight
        stream.drop(numbers[-1])  # it waits
        stream.drop(numbers[0])  # twice
        stream.drop(12345)
        assert sorted(run_to_the_end(stream)) == numbers[1:-1] and stream.room == room


def test_a_context_has_one_stream_and_the_pool_has_as_many_as_are_needed() -> None:
    runner, source, config = NativeProgram(make_attentive()), make_sources(1)[0], SearchConfig(beam=2, max_length=5)
    with runner.stream(config, bos=BOS, eos=EOS) as one, runner.stream(config, bos=BOS, eos=EOS) as other:
        one.add([StreamedSource(source, 5)])
        other.add([StreamedSource(source, 5)])
        runner.search([source], config, bos=BOS, eos=EOS)
        assert run_to_the_end(one) == run_to_the_end(other) == [0]


def test_a_stream_that_failed_cannot_go_on() -> None:
    broken = make_attentive()
    broken.weights["out"][:] = np.nan
    runner, source = NativeProgram(broken), make_sources(1)[0]
    with runner.stream(SearchConfig(beam=2), bos=BOS, eos=EOS) as stream:
        stream.add([StreamedSource(source, 5)])
        with pytest.raises(UserError, match="not probabilities"):
            stream.advance()
        with pytest.raises(UserError, match="cannot go on"):
            stream.advance()
        with pytest.raises(UserError, match="no room"):
            stream.add([StreamedSource(source, 5)])
    with runner.stream(SearchConfig(beam=2), bos=BOS, eos=EOS) as stream:
        assert stream.room > 0  # its context is free again
