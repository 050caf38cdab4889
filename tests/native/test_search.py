"""The native library's own search is that of ``dragoman.search``: the same outputs, scores and traces."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent))

from native_programs import BOS, EOS, PROGRAMS, VOCABULARY, make_attentive, make_sources

from dragoman.errors import UserError
from dragoman.program.native import EncodedBatch, NativeProgram, available_kernels
from dragoman.runtime import search as native_search
from dragoman.search.options import SearchConfig
from dragoman.search.run import search
from dragoman.types import State

ROOT = Path(__file__).parents[2]
KERNELS = available_kernels()
needs_library = pytest.mark.skipif(not KERNELS, reason="the native library is not built; `make native` builds it")
COUNT = 12
SOURCES = make_sources(COUNT)


@dataclass
class NativeStep:
    log_probs: Tensor  # (N, T, V)
    state: State
    attention: Tensor | None  # (N, T, A, S)

    def next_log_probs(self) -> Tensor:
        return self.log_probs[:, -1].clone()


class NativeDecoder:
    """The steps of the native library as a decoder that ``dragoman.search`` drives."""

    def __init__(self, runner: NativeProgram) -> None:
        self.runner = runner
        self.longest = 0

    def start(self, memory: EncodedBatch, sources: int) -> State:
        self.longest = int(memory.lengths.max())
        fixed: dict[str, Any] = {f"{i}": torch.from_numpy(array) for i, array in enumerate(memory.fixed)}
        carry: dict[str, Any] = {f"{i}": torch.from_numpy(array) for i, array in enumerate(memory.slots)}
        fixed["lengths"] = torch.from_numpy(memory.lengths)
        carry["position"] = torch.from_numpy(memory.position)
        carry["cached"] = torch.from_numpy(memory.cached)
        return State(sources, fixed, carry)

    def __call__(self, tokens: Tensor, state: State, need_attention: bool = False) -> NativeStep:
        fixed = {name: tensor.numpy() for name, tensor in state.fixed.items()}  # type: ignore[union-attr]
        carry = {name: tensor.numpy() for name, tensor in state.carry.items()}  # type: ignore[union-attr]
        program = self.runner.program
        values = [fixed[f"{i}"] for i in range(len(program.fixed))]
        # The library wants values as wide as the longest source, and sources leave while a search runs.
        longest = int(fixed["lengths"].max())
        many = [len(program.sources) > 0 and value.shape[1] > 1 for value in values]
        values = [value[:, :longest] if cut else value for value, cut in zip(values, many, strict=True)]
        slots = [carry[f"{i}"] for i in range(len(program.slots))]
        slots = [
            array[..., :longest] if slot.width == 0 else array for array, slot in zip(slots, program.slots, strict=True)
        ]
        position, cached = carry["position"], carry["cached"]
        source = np.repeat(np.arange(state.sources), len(tokens) // state.sources)
        log_probs, maps = [], []
        for column in tokens.numpy().T:
            slots = [
                array[:, : int(cached.max())] if slot.grows else array
                for array, slot in zip(slots, program.slots, strict=True)
            ]
            advanced = self.runner.step(
                column, source, fixed["lengths"], values, slots, position, cached, attention=need_attention
            )
            slots, position = list(advanced.slots), position + 1
            cached = cached + 1 if any(slot.grows for slot in program.slots) else cached
            log_probs.append(torch.from_numpy(advanced.log_probs))
            if advanced.attention is not None:
                missing = self.longest - longest
                maps.append(torch.from_numpy(np.pad(advanced.attention, ((0, 0), (0, 0), (0, missing)))))
        after: dict[str, Any] = {f"{i}": torch.from_numpy(array) for i, array in enumerate(slots)}
        after |= {"position": torch.from_numpy(position), "cached": torch.from_numpy(cached)}
        state = State(state.sources, state.fixed, after)
        return NativeStep(torch.stack(log_probs, 1), state, torch.stack(maps, 1) if maps else None)


SHORT = (5, 6, 7)
CASES: dict[str, dict[str, Any]] = {
    "greedy": {"beam": 1},
    "beam": {},
    "n-best": {"beam": 6, "n_best": 4, "normalize": "none"},
    "gnmt": {"beam": 4, "n_best": 3, "normalize": "gnmt", "alpha": 0.8},
    "certain": {"beam": 4, "n_best": 2, "stop": "certain", "normalize": "none"},
    "certain average": {"beam": 3, "stop": "certain"},
    "min length": {"beam": 3, "min_length": 6, "max_length": 9},
    "n-grams": {"beam": 3, "no_repeat_ngram": 2},
    "unigrams": {"beam": 2, "no_repeat_ngram": 1},
    "forbidden": {"beam": 4, "forbidden": (0, 1, 2, 17, 90), "forbidden_runs": ((40,), (12, 13), (8, 9, 10))},
    "blocked": {"beam": 2, "forbidden": tuple(range(VOCABULARY))},
    "only": {"beam": 3, "n_best": 2, "only": (SHORT, (5, 6), (60, 61, 62, 63), (9,))},
    "only, forbidden": {"beam": 3, "only": (SHORT, (60, 61)), "forbidden": (6, 61, EOS)},
    "wide": {"beam": 140, "n_best": 5, "max_length": 4},
    "sample": {"sample": True, "samples": 3, "seed": 7},
    "top-k": {"sample": True, "samples": 2, "top_k": 5, "temperature": 1.3},
    "top-p": {"sample": True, "top_p": 0.7, "temperature": 0.8, "forbidden": (0, 1, 2)},
    "top-p, flat": {"sample": True, "samples": 2, "top_p": 0.99, "temperature": 9.0},
    "top-k, top-p, only": {"sample": True, "samples": 4, "top_k": 9, "top_p": 0.9, "only": (SHORT, (60, 61))},
}


def run_both(
    name: str, config: SearchConfig, batch_size: int, kernels: str = "", **given: Any
) -> tuple[list[Any], list[Any]]:
    """Search with the loop in Python and with that of the library."""
    runner = NativeProgram(PROGRAMS[name](), kernels=kernels)
    decoder = NativeDecoder(runner)
    expected = search(decoder, runner.encode(SOURCES), COUNT, config, bos=BOS, eos=EOS, need_attention=True, **given)
    given["prefixes"] = given.pop("prefix", None)
    found = runner.search(SOURCES, config, bos=BOS, eos=EOS, attention=True, trace=True, batch_size=batch_size, **given)
    return expected, found


def assert_same(expected: Sequence[Any], found: Sequence[Any]) -> None:
    assert len(expected) == len(found)
    for python, native in zip(expected, found, strict=True):
        assert len(python.trace.steps) == len(native.steps)
        for theirs, ours in zip(python.trace.steps, native.steps, strict=True):
            for field in ("parent", "token", "fate"):
                assert np.array_equal(getattr(theirs, field), getattr(ours, field)), field
            assert np.allclose(theirs.log_prob, ours.log_prob, atol=1e-5)
            assert np.allclose(theirs.total, ours.total, atol=1e-5)
            assert_same_attention(theirs.attention, ours.attention)
        assert len(python.hypotheses) == len(native.hypotheses)
        for theirs, ours in zip(python.hypotheses, native.hypotheses, strict=True):
            assert theirs.tokens == tuple(ours.tokens.tolist())
            assert theirs.path == tuple(ours.path.tolist())
            assert theirs.finished == ours.finished
            assert np.allclose(theirs.log_probs, ours.log_probs, atol=1e-5)
            assert theirs.score == pytest.approx(ours.score, abs=1e-5)
            assert_same_attention(theirs.attention, ours.attention)


def assert_same_attention(theirs: np.ndarray | None, ours: np.ndarray | None) -> None:
    assert (theirs is None) == (ours is None)
    if theirs is not None and ours is not None:
        real = ours.shape[-1]
        assert np.allclose(theirs[..., :real], ours, atol=1e-5)
        assert not theirs[..., real:].any()


SOME = ("beam", "certain", "n-grams", "only", "sample", "top-k")
PAIRS = [(name, case) for name in PROGRAMS for case in (CASES if name == "attentive" else SOME)]


@needs_library
@pytest.mark.parametrize(("name", "case"), PAIRS)
def test_the_loops_agree(name: str, case: str) -> None:
    limits = [3 + index % 12 for index in range(COUNT)]
    given = {"keys": [100 + index for index in range(COUNT)]} if "sample" in CASES[case] else {}
    batch_size = 1 + (len(name) * len(case)) % 9
    assert_same(*run_both(name, SearchConfig(**CASES[case]), batch_size, limits=limits, **given))


@needs_library
@pytest.mark.parametrize("case", ["n-best", "sample", "only"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_forced_prefixes(name: str, case: str) -> None:
    choices: list[tuple[int, ...]] = [(), (5,), (5, 6), (30, 31, 32), (30, EOS), (EOS,), (9, 9, 9, 9, 9)]
    prefix = [choices[index % len(choices)] for index in range(COUNT)]
    config = SearchConfig(**CASES[case], max_length=8)
    limits = [5 if index == 6 else 7 for index in range(COUNT)]
    assert_same(*run_both(name, config, 5, limits=limits, prefix=prefix))


@needs_library
@pytest.mark.parametrize("kernels", KERNELS or ("none",))
def test_the_number_of_sources_in_flight_changes_no_bit(kernels: str) -> None:
    sources = make_sources(80)
    limits = [2 + index % 15 for index in range(80)]
    for name, int8 in (("attentive", False), ("recurrent", True), ("convolutional", False)):
        runner = NativeProgram(PROGRAMS[name](), kernels=kernels, int8=int8)
        config = SearchConfig(beam=3, n_best=2)
        results = [
            runner.search(sources, config, bos=BOS, eos=EOS, limits=limits, batch_size=size) for size in (64, 7, 1)
        ]
        for one, *others in zip(*results, strict=True):
            for other in others:
                for a, b in zip(one.hypotheses, other.hypotheses, strict=True):
                    assert (a.score, a.finished, a.tokens.tolist()) == (b.score, b.finished, b.tokens.tolist())
                    for field in ("log_probs", "entropies", "margins"):
                        assert np.array_equal(getattr(a, field), getattr(b, field))


@needs_library
def test_entropies_and_margins_are_those_of_the_models_distributions() -> None:
    runner = NativeProgram(make_attentive())
    config = SearchConfig(beam=2, max_length=6, forbidden=(0, 1, 2))
    (result,) = runner.search(SOURCES[:1], config, bos=BOS, eos=EOS)
    best = result.hypotheses[0]
    decoder = NativeDecoder(runner)
    state = decoder.start(runner.encode(SOURCES[:1]), 1)
    tokens = torch.tensor([[BOS, *best.tokens.tolist()[:-1]]])
    log_probs = decoder(tokens, state).log_probs[0].double()  # (T, V)
    assert np.allclose(best.entropies, -(log_probs.exp() * log_probs).sum(1), atol=1e-5)
    first, second = log_probs.topk(2, dim=1).values.T
    assert np.allclose(best.margins, first - second, atol=1e-5)


@needs_library
def test_a_shared_model_serves_several_threads() -> None:
    first = NativeProgram(make_attentive())
    config = SearchConfig(beam=3, max_length=12)

    def run(runner: NativeProgram) -> list[list[int]]:
        results = runner.search(SOURCES, config, bos=BOS, eos=EOS)
        return [result.hypotheses[0].tokens.tolist() for result in results]

    expected = run(first)
    runners = [first, first]
    del first
    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(run, runners)] == [expected, expected]


@needs_library
def test_the_caller_can_end_a_search() -> None:
    runner = NativeProgram(make_attentive())
    steps = []

    def stop() -> None:
        steps.append(1)
        if len(steps) == 3:
            raise TimeoutError("enough")

    with pytest.raises(TimeoutError, match="enough"):
        runner.search(SOURCES, SearchConfig(max_length=50), bos=BOS, eos=EOS, on_step=stop)
    assert len(steps) == 3
    assert runner.search(SOURCES[:1], SearchConfig(max_length=5), bos=BOS, eos=EOS)


@needs_library
def test_impossible_searches_are_refused_with_a_sentence() -> None:
    runner = NativeProgram(make_attentive())

    def refuse(match: str, **given: Any) -> None:
        config = SearchConfig(**given.pop("config", {"max_length": 5}))
        with pytest.raises(UserError, match=match):
            runner.search(SOURCES[:2], config, bos=BOS, eos=EOS, **given)

    refuse("needs a length limit", config={})
    refuse("one limit per source: got 1 for 2", limits=[3])
    refuse("setting of the search is impossible", limits=[3, 0])
    refuse("setting of the search is impossible", batch_size=0)
    refuse(f"there is no token {VOCABULARY}", config={"max_length": 5, "forbidden": (VOCABULARY,)})
    refuse("goes on after the end symbol", prefixes=[(EOS, 5), ()])
    refuse("prefix: there is no token", prefixes=[(VOCABULARY,), ()])
    assert runner.search([], SearchConfig(), bos=BOS, eos=EOS) == []
    broken = make_attentive()
    broken.weights["out"][:] = np.nan  # type: ignore[index]
    with pytest.raises(UserError, match="not probabilities"):
        NativeProgram(broken).search(SOURCES, SearchConfig(max_length=5), bos=BOS, eos=EOS)


def test_the_names_in_the_binding_are_those_of_the_header() -> None:
    header = (ROOT / "native" / "dragoman.h").read_text(encoding="utf-8")

    def names(kind: str) -> list[str]:
        (body,) = re.findall(rf"enum {kind} \{{(.*?)\}}", header, re.DOTALL)
        return re.findall(r"DRAGOMAN_(\w+)", re.sub(r"/\*.*?\*/", "", body, flags=re.DOTALL))

    assert names("dragoman_setting") == [name.upper() for name in native_search.SETTINGS]
    assert names("dragoman_list") == [name.upper() for name in native_search.LISTS]
    assert names("dragoman_part") == [*(name.upper() for name, _ in native_search.PARTS), "PARTS"]
    assert f"DRAGOMAN_DRAWS = {native_search.DRAWS}" in header
