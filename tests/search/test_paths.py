"""Sampling, forced prefixes, forced scoring and rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

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
    follow_path,
    log_probs_of,
    random_tables,
    simple,
)
from torch import Tensor

from dragoman.errors import UserError
from dragoman.search import run as search_run
from dragoman.search.beam import FEW, best_extensions
from dragoman.search.options import SearchConfig
from dragoman.search.paths import draw, force
from dragoman.search.rows import block_maxima
from dragoman.search.rules import (
    AllowOnly,
    Bans,
    Forbid,
    ForbidRepeatedNgrams,
    ForbidRuns,
    RequireLength,
    Rule,
    RuleSet,
    allow_only,
    permitted,
)


def chi_square(counts: np.ndarray, expected: np.ndarray) -> float:
    return float((((counts - expected) ** 2) / expected).sum())


def test_samples_follow_the_distribution() -> None:
    tables = random_tables(5, 1, 3, 3, spread=0.7)
    outputs = every_output(tables[0], 3, EOS)
    drawn = 4000
    [result] = decode(tables, SearchConfig(sample=True, samples=drawn, seed=1), 3)
    assert len(result.hypotheses) == drawn
    seen = Counter(output.tokens for output in result.hypotheses)
    expected = drawn * np.exp([total for _, total in outputs])
    counts = np.array([seen[tokens] for tokens, _ in outputs])
    assert expected.sum() == pytest.approx(drawn)
    degrees = len(outputs) - 1
    assert chi_square(counts, expected) < degrees + 5 * np.sqrt(2 * degrees)


@settings(max_examples=30, deadline=None)
@given(
    seed=SEEDS,
    temperature=st.sampled_from((0.5, 1.0, 2.0)),
    top_k=st.integers(0, 7),
    top_p=st.sampled_from((0.3, 0.8, 1.0)),
)
def test_temperature_top_k_and_top_p_shape_the_choice(seed: int, temperature: float, top_k: int, top_p: float) -> None:
    logits = torch.randn(6, generator=torch.Generator().manual_seed(seed)).double()
    shaped = (logits / temperature).softmax(0)
    ranked = shaped.argsort(descending=True)
    if top_k:
        ranked = ranked[:top_k]
    among = shaped[ranked] / shaped[ranked].sum()
    ranked = ranked[among.cumsum(0) - among < top_p]
    expected = torch.zeros(6).double()
    expected[ranked] = shaped[ranked] / shaped[ranked].sum()

    drawn = 20_000
    config = SearchConfig(sample=True, temperature=temperature, top_k=top_k, top_p=top_p)
    uniform = torch.from_numpy(np.random.default_rng(seed).random(drawn, np.float32))
    chosen = draw(logits.float().log_softmax(0).expand(drawn, 6), uniform, config)
    counts = torch.bincount(chosen, minlength=6)
    assert (counts[expected == 0] == 0).all()
    np.testing.assert_allclose(counts / drawn, expected, atol=0.02)


@settings(max_examples=25, deadline=None)
@given(seed=SEEDS, vocabulary=st.integers(2, 6), top_k=st.integers(0, 3))
def test_samples_depend_on_seed_and_key_alone(seed: int, vocabulary: int, top_k: int) -> None:
    tables = random_tables(seed, 5, vocabulary, 2)
    config = SearchConfig(sample=True, samples=4, seed=seed, temperature=1.3, top_k=top_k)
    keys = [7, 1, 3, 40, 2]
    together = decode(tables, config, 9, keys=keys)
    assert simple(together) == simple(decode(tables, config, 9, keys=keys))
    order = [4, 0, 2]
    some = decode(tables[order], config, 9, keys=[keys[index] for index in order])
    assert simple(some) == simple([together[index] for index in order])
    fewer = decode(tables, config.model_copy(update={"samples": 2}), 9, keys=keys)
    assert simple(fewer) == [outputs[:2] for outputs in simple(together)]
    for table, result in zip(tables, together, strict=True):
        assert len(result.hypotheses) == 4
        for output in result.hypotheses:
            follow_path(result.trace, output)
            np.testing.assert_allclose(output.log_probs, log_probs_of(table, output.tokens), atol=1e-6)


def test_seeds_and_keys_differ() -> None:
    table = random_tables(1, 1, 6, 2).expand(3, -1, -1)
    longest = SearchConfig(sample=True, min_length=70, seed=3)
    results = decode(table, longest, 80)
    assert len({result.best.tokens for result in results}) == 3
    other = decode(table, longest.model_copy(update={"seed": 4}), 80)
    assert other[0].best.tokens != results[0].best.tokens
    assert all(len(result.best.tokens) > 70 for result in results)


@settings(max_examples=40, deadline=None)
@given(
    seed=SEEDS,
    beam=st.integers(1, 4),
    sample=st.booleans(),
    minimum=st.integers(0, 4),
    forbidden=st.sets(st.integers(2, 5), max_size=2),
    size=st.integers(0, 3),
)
def test_rules_are_obeyed_and_change_no_report(
    seed: int, beam: int, sample: bool, minimum: int, forbidden: set[int], size: int
) -> None:
    tables = random_tables(seed, 3, 6, 2)
    config = SearchConfig(
        beam=beam,
        n_best=beam,
        sample=sample,
        samples=beam,
        min_length=minimum,
        forbidden=tuple(forbidden),
        no_repeat_ngram=size,
    )
    for table, result in zip(tables, decode(tables, config, 12), strict=True):
        for output in result.hypotheses:
            assert not forbidden & set(output.tokens)
            if size:
                runs = [output.tokens[i : i + size] for i in range(len(output.tokens) - size + 1)]
                assert len(runs) == len(set(runs))
            if output.finished and size != 1:  # each token at most once can leave nothing but the end
                assert len(output.tokens) > minimum
            np.testing.assert_allclose(output.log_probs, log_probs_of(table, output.tokens), atol=1e-6)
            follow_path(result.trace, output)


@settings(max_examples=60, deadline=None)
@given(tokens=st.lists(st.integers(0, 2), max_size=9), size=st.integers(1, 4))
def test_the_repeated_ngram_rule_forbids_exactly_the_repeats(tokens: list[int], size: int) -> None:
    allowed = permitted([ForbidRepeatedNgrams(size)], tokens, 3)
    runs = [tokens[i : i + size] for i in range(len(tokens) - size + 1)]
    for token in range(3):
        assert allowed[token] != ([*tokens, token][-size:] in runs)


@settings(max_examples=40, deadline=None)
@given(
    seed=SEEDS,
    beam=st.integers(1, 4),
    runs=st.lists(st.lists(st.integers(2, 4), min_size=1, max_size=3), min_size=1, max_size=3),
)
def test_forbidden_runs_of_tokens_are_never_written(seed: int, beam: int, runs: list[list[int]]) -> None:
    tables = random_tables(seed, 3, 6, 2)
    config = SearchConfig(beam=beam, n_best=beam, forbidden_runs=tuple(map(tuple, runs)))
    for table, result in zip(tables, decode(tables, config, 12), strict=True):
        for output in result.hypotheses:
            for run in runs:
                windows = [output.tokens[i : i + len(run)] for i in range(len(output.tokens) - len(run) + 1)]
                assert tuple(run) not in windows
            np.testing.assert_allclose(output.log_probs, log_probs_of(table, output.tokens), atol=1e-6)


def test_where_rules_leave_nothing_the_output_ends() -> None:
    tables = random_tables(2, 3, 4, 2)
    for result in decode(tables, SearchConfig(beam=2, min_length=5, no_repeat_ngram=1), 9):
        assert result.best.finished
        assert sorted(result.best.tokens[:-1]) == [1, 2, 3]
    endless = tables.clone()
    endless[..., EOS] = -torch.inf
    for beam in (1, 3):
        for result in decode(endless, SearchConfig(beam=beam, forbidden=(1, 2, 3)), 4):
            assert not result.best.finished
            assert len(result.best.tokens) == 4
            assert np.isfinite(result.best.score)


class Never(Rule):
    """After a prefix of its own, each source may write nothing but some tokens, which may be none."""

    hard = True

    def __init__(self, after: dict[int, dict[tuple[int, ...], list[int]]]) -> None:
        self.after = after

    def start(self, sources: Sequence[int], prefixes: np.ndarray) -> None:
        self.rows = [(source, tuple(row)) for source, row in zip(sources, prefixes.tolist(), strict=True)]

    def advance(self, parents: np.ndarray, tokens: np.ndarray) -> None:
        pairs = zip(parents.tolist(), tokens.tolist(), strict=True)
        self.rows = [(self.rows[parent][0], (*self.rows[parent][1], token)) for parent, token in pairs]

    def bans(self) -> Bans:
        known = [self.after.get(source, {}).get(produced) for source, produced in self.rows]
        only = {row: np.array(allowed, np.int64) for row, allowed in enumerate(known) if allowed is not None}
        return allow_only(list(only), list(only.values()))


@pytest.mark.parametrize("config", [SearchConfig(beam=3, n_best=3), SearchConfig(beam=1), SearchConfig(sample=True)])
def test_a_hard_rule_is_never_waived(monkeypatch: Any, config: SearchConfig) -> None:
    """Source 0 may only write 3, 2 and what follows; source 1 dies at once; source 2 is free."""
    tables = random_tables(6, 3, 5, 2)
    after: dict[int, dict[tuple[int, ...], list[int]]] = {0: {(): [3], (3,): [2]}, 1: {(): []}}
    given = config.model_copy(update={"min_length": 1, "forbidden": (2,)})
    build = search_run.build_rules
    monkeypatch.setattr(search_run, "build_rules", lambda config, eos: (*build(config, eos), Never(after)))
    first, dead, free = decode(tables, given, 6)
    assert all(output.tokens[:2] == (3, 2) for output in first.hypotheses), "waived is the preference"
    assert not dead.hypotheses
    monkeypatch.undo()
    assert simple([free]) == simple(decode(tables[2:], given, 6, keys=[2]))


RULES: dict[str, Any] = {
    "length": lambda: RequireLength(3, EOS),
    "forbid": lambda: Forbid((1, 3)),
    "runs": lambda: ForbidRuns([(2, 1), (1, 1, 2), (3,)]),
    "ngrams": lambda: ForbidRepeatedNgrams(2),
    "only": lambda: AllowOnly([(1, 2, 1), (1, 1), (2,)], EOS),
}


@pytest.mark.parametrize("name", RULES)
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_a_rule_knows_a_row_by_its_tokens_alone(name: str, seed: int) -> None:
    """Rows are multiplied, dropped and permuted; what is forbidden is what it is after the tokens as a prefix."""
    draw = np.random.default_rng(seed)
    rule = RULES[name]()
    produced = draw.integers(0, 4, (2, seed % 3))
    rule.start([0, 1], produced)
    for width in (2, 5, 3, 4):
        parents, tokens = draw.integers(0, len(produced), width), draw.integers(1, 4, width)
        rule.advance(parents, tokens)
        produced = np.concatenate([produced[parents], tokens[:, None]], 1)
        scores = torch.zeros(width, 5)
        rules = RuleSet([rule], EOS)
        rules._ask()
        rules.forbid(scores, 0)
        for row, prefix in enumerate(produced.tolist()):
            assert (scores[row] == 0).tolist() == permitted([RULES[name]()], prefix, 5).tolist()


@pytest.mark.parametrize("copies", [1, 3])  # 2 and 6 sources: few are looked through one by one
def test_a_large_vocabulary_is_searched_by_blocks_and_ties_are_exact(copies: int) -> None:
    """Few different numbers, so that many sums are equal, against a plain sort."""
    sources = 2 * copies
    assert (sources <= FEW) == (copies == 1)
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        vocabulary = 1024 + 37 * seed
        drawn = torch.randint(1, 4 if seed % 2 else 4000, (3 * sources, vocabulary), generator=generator)
        log_probs = -drawn.float() / 8
        log_probs[:, ::3] = -torch.inf
        totals = np.array([[0.0, -0.5, -np.inf], [-1.0, -1.0, -2.0]] * copies)
        for count in (1, 4, 40):
            for width in (1, 3):
                some = log_probs[: sources * width]
                sums = totals[:, :width, None] + some.view(sources, width, -1).double().numpy()
                order = np.argsort(-sums.reshape(sources, -1), axis=1, kind="stable")[:, :count]
                parent, token, _, total = best_extensions(some, block_maxima(some), totals[:, :width], count)
                assert (parent * vocabulary + token).tolist() == order.tolist()
                np.testing.assert_array_equal(total, np.take_along_axis(sums.reshape(sources, -1), order, 1))


@pytest.mark.parametrize("sources", [1, 6])
@pytest.mark.parametrize("width", [1, 3])
def test_fewer_extensions_than_asked_for_and_nan_are_seen(sources: int, width: int) -> None:
    log_probs = torch.full((sources * width, 1100), -torch.inf)
    log_probs[:, 1099] = -1.0
    totals = np.zeros((sources, width))
    _, token, _, total = best_extensions(log_probs, block_maxima(log_probs), totals, 4)
    assert (total == -1.0).sum(1).tolist() == [width] * sources
    assert (token[:, :width] == 1099).all()
    log_probs[0, 7] = torch.nan
    assert np.isnan(best_extensions(log_probs, block_maxima(log_probs), totals, 4)[3][0]).any()


def test_a_forbidden_token_must_exist() -> None:
    with pytest.raises(UserError, match="no token 99"):
        decode(random_tables(0, 1, 4, 2), SearchConfig(forbidden=(2, 99)))


PREFIXES: list[list[int]] = [[], [1], [2, 1], [3], [1, 2, EOS], [1, 1, 1, 1, 1, 1], []]


@pytest.mark.parametrize("config", [SearchConfig(beam=4, n_best=4), SearchConfig(beam=1), SearchConfig(sample=True)])
def test_forced_prefix(config: SearchConfig) -> None:
    tables = random_tables(8, len(PREFIXES), 5, 2)
    decoder = TableDecoder()
    results = decode(tables, config, prefix=PREFIXES, decoder=decoder)
    for table, prefix, result in zip(tables, PREFIXES, results, strict=True):
        assert result.trace.prefix == tuple(prefix)
        for step in result.trace.steps[: len(prefix)]:
            assert len(step.token) == 1
        for output in result.hypotheses:
            assert output.tokens[: len(prefix)] == tuple(prefix)
            np.testing.assert_allclose(output.log_probs, log_probs_of(table, output.tokens), atol=1e-6)
            assert output.score == pytest.approx(output.log_prob / config.penalty(len(output.tokens)))
            follow_path(result.trace, output)
    assert results[4].best.tokens == (1, 2, EOS)
    assert results[4].best.finished
    assert results[5].best.tokens == (1,) * 6
    assert not results[5].best.finished
    assert {tokens for _, tokens in decoder.calls} == {1, 2, 3, 6}  # each prefix in one call


@settings(max_examples=30, deadline=None)
@given(seed=SEEDS, prefix=st.lists(st.integers(1, 3), max_size=3))
def test_a_prefix_leads_to_the_best_output_that_has_it(seed: int, prefix: list[int]) -> None:
    tables = random_tables(seed, 1, 4, 4)
    outputs = every_output(tables[0], 4, EOS)
    finished = [(total, y) for y, total in outputs if y[-1] == EOS and list(y[: len(prefix)]) == prefix]
    [result] = decode(tables, SearchConfig(beam=len(outputs), normalize="none"), 4, prefix=[prefix])
    assert result.best.tokens == max(finished)[1]


def test_the_greedy_output_as_prefix_gives_itself() -> None:
    tables = random_tables(21, 4, 5, 2)
    free = decode(tables, SearchConfig(beam=1), 9)
    for length in (1, 2, 3):
        prefixes = [result.best.tokens[:length] for result in free]
        assert simple(decode(tables, SearchConfig(beam=1), 9, prefix=prefixes)) == simple(free)


def test_forced_scoring_is_one_padded_call() -> None:
    tables = random_tables(4, 4, 5, 2)
    targets = [[1, 2, EOS], [], [3], [1, 1, 1, 1, EOS]]
    decoder = TableDecoder()
    outputs = force(decoder, tables, 4, targets, bos=5, eos=EOS, need_attention=True)
    assert decoder.calls == [(4, 5)]
    for table, target, output in zip(tables, targets, outputs, strict=True):
        assert output.tokens == tuple(target)
        assert output.finished == (target[-1:] == [EOS])
        np.testing.assert_allclose(output.log_probs, log_probs_of(table, target), atol=1e-6)
        assert output.score == pytest.approx(sum(output.log_probs))
        assert output.attention is None if not target else output.attention is not None
    with pytest.raises(UserError, match="one target per source"):
        force(decoder, tables, 4, targets[:2], bos=5)


def test_an_impossible_target_has_no_probability() -> None:
    table: Tensor = random_tables(4, 1, 3, 2)
    table[:, 0, 1] = -torch.inf
    [output] = force(TableDecoder(), table, 1, [[1, EOS]], bos=3, eos=EOS)
    assert output.score == -np.inf
    with pytest.raises(UserError, match="impossible"):
        decode(table, SearchConfig(), prefix=[[1]])
