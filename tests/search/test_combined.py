"""Several decoders that answer as one, against tables that say what the answer must be."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from search_tables import EOS, SEEDS, TableDecoder, every_output, follow_path, nodes_of, simple
from torch import Tensor

from dragoman.search.combined import Ensemble, Fusion, Renumbered
from dragoman.search.options import SearchConfig
from dragoman.search.paths import force
from dragoman.search.run import search

VOCABULARY, DEPTH = 4, 4
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"beam": 1},
    "beam": {"beam": 3, "n_best": 3},
    "certain": {"beam": 3, "n_best": 2, "stop": "certain", "normalize": "none"},
    "rules": {"beam": 3, "no_repeat_ngram": 1, "min_length": 2},
    "sampled": {"sample": True, "samples": 3, "seed": 5, "top_p": 0.9},
}
every_search = pytest.mark.parametrize("name", SEARCHES)


def tables(seed: int, sources: int = 3, nodes: int = 40) -> Tensor:
    return torch.randn(sources, nodes, VOCABULARY, generator=torch.Generator().manual_seed(seed)) * 2


def answers(decoder: Any, memory: Any, config: SearchConfig, sources: int = 3, **more: Any) -> list[Any]:
    return search(decoder, memory, sources, config, bos=VOCABULARY, eos=EOS, limits=[6] * sources, **more)


def close(first: list[Any], second: list[Any]) -> bool:
    numbers = [
        [[*h.log_probs, h.score] for result in results for h in result.hypotheses] for results in (first, second)
    ]
    return simple(first) == simple(second) and all(
        a == pytest.approx(b, abs=1e-4) for a, b in zip(*numbers, strict=True)
    )


@every_search
def test_an_ensemble_of_a_model_with_itself_is_the_model(name: str) -> None:
    config, memory = SearchConfig(**SEARCHES[name]), tables(1)
    alone = answers(TableDecoder(), memory, config)
    assert close(answers(Ensemble([TableDecoder()] * 3), [memory] * 3, config), alone)


@every_search
@given(seed=SEEDS)
@settings(max_examples=10, deadline=None)
def test_an_ensemble_is_the_model_of_mean_probabilities(name: str, seed: int) -> None:
    config, first, second = SearchConfig(**SEARCHES[name]), tables(seed), tables(seed + 1)
    mean = torch.log((first.softmax(-1) + second.softmax(-1)) / 2)
    found = answers(Ensemble([TableDecoder(), TableDecoder()]), [first, second], config)
    assert close(found, answers(TableDecoder(), mean, config))
    for result in found:
        for output in result.hypotheses:
            follow_path(result.trace, output)


def test_forced_prefix_and_forced_scores_of_an_ensemble() -> None:
    first, second = tables(1), tables(2)
    mean = torch.log((first.softmax(-1) + second.softmax(-1)) / 2)
    config, ensemble = SearchConfig(beam=2), Ensemble([TableDecoder(), TableDecoder()])
    prefix = [[1], [2, 3], []]
    found = answers(ensemble, [first, second], config, prefix=prefix, need_attention=True)
    assert close(found, answers(TableDecoder(), mean, config, prefix=prefix))
    targets = [result.best.tokens for result in found]
    scored = force(ensemble, [first, second], 3, targets, bos=VOCABULARY, eos=EOS)
    for one, result in zip(scored, found, strict=True):
        assert one.log_probs == pytest.approx(result.best.log_probs, abs=1e-5)
        assert result.best.attention is not None and len(result.best.attention) == len(result.best.tokens)


@given(seed=SEEDS, weight=st.sampled_from([0.0, 0.3, 2.0]))
@settings(max_examples=15, deadline=None)
def test_fusion_finds_the_best_weighted_sum(seed: int, weight: float) -> None:
    """A beam as wide as the tree against all outputs that there are."""
    nodes = nodes_of(VOCABULARY, DEPTH)
    model, other = tables(seed, 1, nodes), tables(seed + 1, 1, nodes)
    own, told = (dict(every_output(table[0], DEPTH, EOS)) for table in (model, other))
    sums = {output: own[output] + weight * told[output] for output in own if output[-1] == EOS}
    best = sorted(sums, key=lambda output: -sums[output])[:3]
    config = SearchConfig(beam=VOCABULARY**DEPTH, n_best=3, normalize="none")
    fusion = Fusion(TableDecoder(), WithTable(other), weight)
    (result,) = search(fusion, model, 1, config, bos=VOCABULARY, eos=EOS, limits=[DEPTH])
    assert [output.tokens for output in result.hypotheses] == best
    for output in result.hypotheses:
        follow_path(result.trace, output)
        assert output.score == pytest.approx(sums[output.tokens], abs=1e-4)


@every_search
def test_fusion_without_weight_is_the_model(name: str) -> None:
    config, memory = SearchConfig(**SEARCHES[name]), tables(3)
    impossible = tables(4)
    impossible[:, :, 1] = float("-inf")
    found = answers(Fusion(TableDecoder(), WithTable(impossible), 0.0), memory, config)
    assert close(found, answers(TableDecoder(), memory, config))


def test_what_the_language_model_holds_for_impossible_is_not_chosen() -> None:
    memory, forbids = tables(5), tables(6)
    forbids[:, :, 2] = float("-inf")
    fusion = Fusion(TableDecoder(), WithTable(forbids), 0.1)
    for name in SEARCHES:
        results = answers(fusion, memory, SearchConfig(**SEARCHES[name]))
        assert all(2 not in output.tokens for result in results for output in result.hypotheses)


class WithTable(TableDecoder):
    """A language model: the table is its own, and there is no memory."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.table = table

    def start(self, memory: None, sources: int) -> Any:
        assert memory is None
        return super().start(self.table, sources)


@pytest.mark.parametrize("name", [name for name in SEARCHES if name != "sampled"])
def test_renumbering_the_tokens_renumbers_the_outputs(name: str) -> None:
    config, memory, bos = SearchConfig(**SEARCHES[name]), tables(7), 1
    ids = torch.tensor([EOS, 3, 1, 2])
    limits = [6] * len(memory)
    plain = search(TableDecoder(), memory, 3, config, bos=bos, eos=EOS, limits=limits)
    other = search(Renumbered(TableDecoder(), ids), memory, 3, config, bos=bos, eos=EOS, limits=limits)
    for first, second in zip(plain, other, strict=True):
        for ours, theirs in zip(first.hypotheses, second.hypotheses, strict=True):
            assert ours.tokens == tuple(ids[list(theirs.tokens)].tolist())
            assert ours.log_probs == pytest.approx(theirs.log_probs)


def test_renumbering_there_and_back_is_nothing() -> None:
    ids, memory = torch.tensor([EOS, 3, 1, 2]), tables(8)
    twice = Renumbered(Renumbered(TableDecoder(), ids), torch.argsort(ids))
    for settings_ in SEARCHES.values():
        config = SearchConfig(**settings_)
        results = [search(one, memory, 3, config, bos=1, eos=EOS, limits=[6] * 3) for one in (twice, TableDecoder())]
        assert close(*results)
