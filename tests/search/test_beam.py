"""Beam and greedy search against exhaustive search, and the laws of every search."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from search_tables import (
    EOS,
    SEEDS,
    TableDecoder,
    decode,
    every_output,
    exhaustive,
    follow_path,
    greedy,
    log_probs_of,
    looks,
    nodes_of,
    random_tables,
    simple,
    walk,
)
from torch import Tensor

from dragoman.config import Section
from dragoman.errors import UserError
from dragoman.search.options import SearchConfig
from dragoman.search.paths import force
from dragoman.search.run import search
from dragoman.types import FINISHED, PRUNED

NORMALIZE: tuple[Literal["none", "average", "gnmt"], ...] = ("none", "average", "gnmt")
STOP: tuple[Literal["complete", "certain"], ...] = ("complete", "certain")
CONFIGS = st.builds(
    lambda **given: SearchConfig(**{**given, "n_best": min(given["n_best"], given["beam"])}),
    beam=st.integers(1, 6),
    n_best=st.integers(1, 6),
    normalize=st.sampled_from(NORMALIZE),
    stop=st.sampled_from(STOP),
    alpha=st.sampled_from((0.0, 0.6, 1.0)),
)


@settings(max_examples=500, deadline=None)
@given(seed=SEEDS, vocabulary=st.integers(2, 5), depth=st.integers(2, 5))
def test_a_beam_as_wide_as_the_tree_is_exhaustive_search(seed: int, vocabulary: int, depth: int) -> None:
    if vocabulary == 5:
        depth = min(depth, 4)  # 341 outputs; a fifth level has four times as many and shows nothing new
    tables = random_tables(seed, 1, vocabulary, depth)
    outputs = len(every_output(tables[0], depth, EOS))
    for index, normalize in enumerate(NORMALIZE):
        stop = STOP[(seed + index) % 2]
        config = SearchConfig(beam=outputs, n_best=outputs, normalize=normalize, stop=stop)
        [result] = decode(tables, config, depth)
        expected = exhaustive(tables[0], depth, EOS, config)
        found = [output.tokens for output in result.hypotheses]
        assert sorted(found) == sorted(tokens for tokens, _ in expected)
        # In place i stands an output as good as the i-th best: the same one, or by chance one with an equal sum.
        score_of = dict(expected)
        by_rank = [score for _, score in expected]
        np.testing.assert_allclose([score_of[tokens] for tokens in found], by_rank, rtol=0, atol=1e-6)
        np.testing.assert_allclose([output.score for output in result.hypotheses], by_rank, rtol=0, atol=1e-6)
        assert [output.finished for output in result.hypotheses] == [tokens[-1] == EOS for tokens, _ in expected]


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, vocabulary=st.integers(2, 6), normalize=st.sampled_from(NORMALIZE), stop=st.sampled_from(STOP))
def test_a_beam_of_one_is_greedy(seed: int, vocabulary: int, normalize: Any, stop: Any) -> None:
    tables = random_tables(seed, 3, vocabulary, 2)
    results = decode(tables, SearchConfig(beam=1, normalize=normalize, stop=stop), 8)
    for table, result in zip(tables, results, strict=True):
        assert [output.tokens for output in result.hypotheses] == [greedy(table, 8, EOS)]


@settings(max_examples=100, deadline=None)
@given(seed=SEEDS, vocabulary=st.integers(2, 7), config=CONFIGS)
def test_laws_of_hypotheses(seed: int, vocabulary: int, config: SearchConfig) -> None:
    tables = random_tables(seed, 4, vocabulary, 2)
    limits = [1, 4, 7, 9]
    for table, limit, result in zip(tables, limits, decode(tables, config, limits), strict=True):
        outputs = result.hypotheses
        assert 1 <= len(outputs) <= config.n_best
        assert len({output.tokens for output in outputs}) == len(outputs)
        order = [(not output.finished, -output.score) for output in outputs]
        assert order == sorted(order)
        for output in outputs:
            assert len(output.tokens) <= limit
            assert output.finished == (output.tokens[-1] == EOS)
            assert EOS not in output.tokens[:-1]
            assert output.finished or len(output.tokens) == limit
            np.testing.assert_allclose(output.log_probs, log_probs_of(table, output.tokens), atol=1e-6)
            assert output.score == pytest.approx(sum(output.log_probs) / config.penalty(len(output.tokens)))
            assert math.isfinite(output.score)
            follow_path(result.trace, output)
            [forced] = force(TableDecoder(), table[None], 1, [output.tokens], bos=vocabulary, eos=EOS, config=config)
            assert forced.score == pytest.approx(output.score, abs=1e-6)
            assert forced.finished == output.finished


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, vocabulary=st.integers(2, 7), config=CONFIGS)
def test_n_best_is_a_prefix_of_a_longer_n_best(seed: int, vocabulary: int, config: SearchConfig) -> None:
    tables = random_tables(seed, 3, vocabulary, 2)
    first = simple(decode(tables, config.model_copy(update={"n_best": 1})))
    several = simple(decode(tables, config.model_copy(update={"n_best": config.beam})))
    assert first == [outputs[:1] for outputs in several]


@settings(max_examples=60, deadline=None)
@given(
    seed=SEEDS, vocabulary=st.integers(2, 7), config=CONFIGS, limits=st.lists(st.integers(1, 9), min_size=7, max_size=7)
)
def test_a_source_does_not_notice_its_batch(
    seed: int, vocabulary: int, config: SearchConfig, limits: list[int]
) -> None:
    tables = random_tables(seed, 7, vocabulary, 2)
    together = decode(tables, config, limits)
    for index, result in enumerate(together):
        [alone] = decode(tables[index : index + 1], config, limits[index])
        assert [(x.tokens, x.path) for x in alone.hypotheses] == [(x.tokens, x.path) for x in result.hypotheses]
        assert len(alone.trace.steps) == len(result.trace.steps)
        for one, other in zip(alone.trace.steps, result.trace.steps, strict=True):
            for name in ("parent", "token", "fate"):
                np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
            np.testing.assert_allclose(one.total, other.total, atol=1e-6)


@pytest.mark.parametrize("beam", [1, 3])
def test_equal_probabilities_are_ordered_by_row_and_token(beam: int) -> None:
    tables = torch.zeros(5, nodes_of(4, 2), 4)
    results = decode(tables, SearchConfig(beam=beam, n_best=beam, min_length=2), 3)
    assert results[0].hypotheses[0].tokens == (1, 1, 0)
    assert all(simple([result]) == simple(results[:1]) for result in results)


@settings(max_examples=40, deadline=None)
@given(seed=SEEDS, vocabulary=st.integers(3, 6), beam=st.integers(1, 5))
def test_the_beam_shrinks_until_all_are_complete(seed: int, vocabulary: int, beam: int) -> None:
    tables = random_tables(seed, 2, vocabulary, 2)
    for result in decode(tables, SearchConfig(beam=beam, n_best=beam), 40):
        width = beam
        for step in result.trace.steps:
            taken = step.fate != PRUNED
            assert taken.sum() == min(width, len(step.fate))
            assert taken[: taken.sum()].all()
            assert (step.fate == FINISHED).tolist() == (taken & (step.token == EOS)).tolist()
            assert (np.diff(step.total) <= 0).all()
            assert np.isfinite(step.total).all()
            assert len(step.total) <= 2 * beam
            width -= int((step.fate == FINISHED).sum())
        live = len(result.trace.steps[-1].kept)
        assert len(result.hypotheses) == beam or live + len(result.hypotheses) <= beam
        assert width == 0 or len(result.trace.steps) == 40


@settings(max_examples=60, deadline=None)
@given(seed=SEEDS, normalize=st.sampled_from(NORMALIZE), n_best=st.integers(1, 3))
def test_certain_stops_early_and_loses_nothing(seed: int, normalize: Any, n_best: int) -> None:
    """The same beam, made to run to the limit, finds nothing better than what it stopped with."""
    tables = random_tables(seed, 1, 5, 2)
    config = SearchConfig(beam=4, n_best=n_best, normalize=normalize, stop="certain")
    [stopped] = decode(tables, config, 8)
    [longer] = decode(tables, config.model_copy(update={"n_best": 4}), 8)
    assert simple([stopped])[0] == simple([longer])[0][:n_best]
    finished = [x for x in stopped.hypotheses if x.finished]
    if len(stopped.trace.steps) < 8 and len(finished) == n_best:
        live = stopped.trace.steps[-1].total[stopped.trace.steps[-1].kept]
        assert (live / config.penalty(8) <= finished[-1].score + 1e-9).all()


def yes_and_ok() -> Tensor:
    """Over </s> = 0, yes = 1, ok = 2: greedy sees 0.5 before 0.4, and 0.4 * 0.7 too late."""
    table = torch.ones(nodes_of(3, 2), 3).log()
    table[0] = torch.tensor([0.1, 0.5, 0.4]).log()
    table[2] = torch.tensor([0.3, 0.4, 0.3]).log()  # after yes
    table[3] = torch.tensor([0.1, 0.2, 0.7]).log()  # after ok
    table[4:] = torch.tensor([1.0, 0.0, 0.0]).log()
    return table[None]


@pytest.mark.parametrize("normalize", NORMALIZE)
@pytest.mark.parametrize("stop", STOP)
def test_worked_example(normalize: Any, stop: Any) -> None:
    [narrow] = decode(yes_and_ok(), SearchConfig(beam=1, normalize=normalize, stop=stop))
    assert narrow.best.tokens == (1, 1, EOS)
    assert math.exp(narrow.best.log_prob) == pytest.approx(0.5 * 0.4)
    [wide] = decode(yes_and_ok(), SearchConfig(beam=2, normalize=normalize, stop=stop))
    assert wide.best.tokens == (2, 2, EOS)
    assert math.exp(wide.best.log_prob) == pytest.approx(0.4 * 0.7)


def test_impossible_tokens_are_never_candidates() -> None:
    [result] = decode(yes_and_ok(), SearchConfig(beam=6, n_best=6))
    assert all(np.isfinite(step.total).all() for step in result.trace.steps)
    assert len(result.hypotheses) == 6
    assert all(output.finished for output in result.hypotheses)


def test_attention_is_read_along_the_path() -> None:
    tables = random_tables(3, 5, 6, 2)
    config = SearchConfig(beam=4, n_best=4)
    with_attention = decode(tables, config, need_attention=True, prefix=[[], [2], [3, 1], [], [1]])
    without = decode(tables, config, prefix=[[], [2], [3, 1], [], [1]])
    assert simple(with_attention) == simple(without)
    for table, result, plain in zip(tables, with_attention, without, strict=True):
        for output in result.hypotheses:
            nodes = torch.tensor(list(walk(table, output.tokens))[:-1])
            assert output.attention is not None
            assert output.attention.shape == (len(output.tokens), 1, 2)
            np.testing.assert_allclose(output.attention[:, 0, 0], looks(nodes).numpy())
        assert plain.best.attention is None
        for before, step in zip(result.trace.steps, result.trace.steps[1:], strict=False):
            assert step.attention is not None
            assert len(step.attention) == len(before.kept)


@pytest.mark.parametrize("config", [SearchConfig(beam=3), SearchConfig(beam=1), SearchConfig(sample=True, samples=3)])
def test_done_sources_leave_the_batch(config: SearchConfig) -> None:
    decoder = TableDecoder()
    limits = [1, 2, 5, 9]
    results = decode(random_tables(11, 4, 5, 2) - 50 * torch.eye(5)[EOS], config, limits, decoder=decoder)
    assert [len(result.best.tokens) for result in results] == limits
    width = 1 if config.beam == 1 else 3
    assert [rows for rows, _ in decoder.calls] == [4, 3 * width] + [2 * width] * 3 + [width] * 4
    assert all(tokens == 1 for _, tokens in decoder.calls)


def test_unfinished_come_after_finished() -> None:
    """A loop with a perfect average does not beat an output that ends."""
    table = torch.tensor([0.1, 0.0, 0.9]).log().expand(40, 3)[None]
    config = SearchConfig(beam=3, n_best=3)
    [result] = decode(table, config, 10)
    assert result.best.finished
    assert result.hypotheses[-1].score > result.best.score
    assert not result.hypotheses[-1].finished


def test_no_sources_no_results() -> None:
    assert search(TableDecoder(), torch.zeros(0, 1, 2), 0, SearchConfig(max_length=3), bos=2, eos=EOS) == []


def test_mistakes_are_explained() -> None:
    tables = random_tables(0, 2, 3, 2)
    with pytest.raises(UserError, match="length limit"):
        search(TableDecoder(), tables, 2, SearchConfig(), bos=3, eos=EOS)
    with pytest.raises(UserError, match="at least 1"):
        decode(tables, SearchConfig(), [0, 3])
    with pytest.raises(UserError, match="not probabilities"):
        decode(torch.full_like(tables, math.nan), SearchConfig())
    with pytest.raises(UserError, match="not probabilities"):
        decode(torch.full_like(tables, math.nan), SearchConfig(sample=True))
    with pytest.raises(UserError, match="after the end symbol"):
        decode(tables, SearchConfig(), prefix=[[1, EOS, 1], []])
    with pytest.raises(ValueError, match="n_best = 3"):
        SearchConfig(beam=2, n_best=3)
    with pytest.raises(ValueError, match="no room"):
        SearchConfig(min_length=5, max_length=5)
    assert issubclass(SearchConfig, Section)
