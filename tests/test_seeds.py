"""Means over seeds with t-intervals, and comparisons of any number of runs."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.config import merge
from dragoman.errors import UserError
from dragoman.evaluation.metrics import Report, Score, compare_means, holm, join_seeds, spread
from dragoman.evaluation.metrics.report import format_p, state_p
from dragoman.evaluation.metrics.spread import t_probability, t_quantile
from dragoman.evaluation.several import Entrant, compare_several
from dragoman.runs.setup import NAMED
from dragoman.training.run import train

# ---- the statistics


@pytest.mark.parametrize(
    ("freedom", "quantile"),  # of 0.975, from printed tables
    [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (30, 2.0423), (1e7, 1.9600)],
)
def test_quantiles_of_the_t_distribution(freedom: float, quantile: float) -> None:
    assert t_quantile(0.975, freedom) == pytest.approx(quantile, abs=5e-5)


def test_the_t_distribution_has_its_closed_forms() -> None:
    for t in (-3.0, -0.2, 0.0, 0.7, 5.0):
        assert t_probability(t, 1) == pytest.approx(0.5 + math.atan(t) / math.pi, abs=1e-12)
        assert t_probability(t, 2) == pytest.approx(0.5 + t / (2 * math.sqrt(2 + t * t)), abs=1e-12)


def test_the_mean_over_seeds_has_a_t_interval() -> None:
    three = spread([91.0, 93.0, 95.0])
    half = 4.302653 * 2 / math.sqrt(3)
    assert (three.mean, three.deviation) == (93.0, 2.0)
    assert three.low == pytest.approx(93 - half) and three.high == pytest.approx(93 + half)
    assert spread([4.0]).low is None and spread([4.0]).mean == 4.0
    with pytest.raises(UserError, match="nothing to average"):
        spread([])


def test_welch_compares_two_means() -> None:
    """The values of scipy.stats.ttest_ind(equal_var=False)."""
    difference = compare_means([1.0, 2.0, 3.0], [4.0, 5.0, 7.0])
    assert difference is not None and difference.value == pytest.approx(10 / 3)
    # t = 3.1623, df = 3.4483 by the formulas of Welch and Satterthwaite
    assert difference.p_value == pytest.approx(2 * (1 - t_probability(math.sqrt(10), 100 / 29)))
    assert difference.low < difference.value < difference.high
    same = compare_means([2.0, 2.0], [2.0, 2.0])
    assert same is not None and same.p_value == 1.0
    assert compare_means([1.0], [2.0, 3.0]) is None


def test_p_values_of_several_comparisons_are_corrected() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0] and holm([]) == []
    assert format_p(0.001, smallest=True) == "≤ 0.001" and format_p(0.25) == "0.250"
    assert format_p(1e-5) == "< 0.001" and state_p(1e-5) == "p < 0.001" and state_p(0.25) == "p = 0.250"


def test_seeds_with_other_metrics_are_refused() -> None:
    def report(name: str) -> Report:
        return Report(5, 5, name, {name: Score(name, name, 50.0, 40.0, 60.0, "higher", "%")})

    with pytest.raises(UserError, match="different metrics"):
        join_seeds({"seed-1": report("exact"), "seed-2": report("bleu")})


# ---- the verbs


@pytest.fixture(scope="module")
def runs(tiny_run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a group of three seeds, one of two, and a run that has learnt next to nothing."""
    place = tmp_path_factory.mktemp("runs")
    trainings = (("group/seed-1", 1, 60), ("group/seed-2", 2, 50), ("group/seed-10", 10, 40), ("weak", 1, 2))
    for name, seed, updates in trainings:
        settings = merge(tiny_run.settings, {"metric": "cer", "training": {"seed": seed, "max_updates": updates}})
        train(tiny_run.pairs, out=place / name, settings=settings)
    for number in (1, 2):
        shutil.copytree(place / "weak", place / "weak-group" / f"seed-{number}")
    return place


def test_evaluate_takes_a_folder_of_seeds(runs: Path, tiny_run: Any, call: Any) -> None:
    answer = call("evaluate", runs / "group", tiny_run.pairs, "--json")
    assert answer.code == 0, answer.err
    plain = json.loads(answer.out)
    assert list(plain["runs"]) == ["seed-1", "seed-2", "seed-10"]  # in the order of the seeds
    values = [run["scores"]["cer"]["value"] for run in plain["runs"].values()]
    over_seeds = plain["seeds"]["cer"]
    assert over_seeds["values"] == values and over_seeds["mean"] == pytest.approx(sum(values) / 3)
    assert over_seeds["low"] == spread(values).low
    single = json.loads(call("evaluate", runs / "group" / "seed-2", tiny_run.pairs, "--json").out)
    assert single["scores"]["cer"] == plain["runs"]["seed-2"]["scores"]["cer"]
    text = call("evaluate", runs / "group", tiny_run.pairs).out.decode()
    assert "means over 3 seeds with 95 % t-intervals" in text and "seed-10" in text and "over rows" in text


def test_a_verb_for_one_run_names_the_seeds(runs: Path, call: Any) -> None:
    answer = call("predict", runs / "group", stdin=b"abc\n")
    assert answer.code == 2 and "holds the runs of 3 seeds" in answer.err and "seed-1" in answer.err


def test_the_folder_of_a_sweep_names_its_candidates(runs: Path, tiny_run: Any, call: Any, tmp_path: Path) -> None:
    for name in ("cho2014", "cho2014,width=32"):
        (tmp_path / name).symlink_to(runs / "group", target_is_directory=True)
    answer = call("evaluate", tmp_path, tiny_run.pairs)
    assert answer.code == 2 and "holds the candidates of a sweep" in answer.err
    assert f"{tmp_path / 'cho2014'}, {tmp_path / 'cho2014,width=32'}" in answer.err
    with pytest.raises(UserError, match="holds the candidates of a sweep"):
        dragoman.load(tmp_path)
    for number in range(NAMED):
        (tmp_path / f"other-{number}").symlink_to(runs / "group", target_is_directory=True)
    with pytest.raises(UserError, match="and 2 more"):
        dragoman.load(tmp_path)


def test_compare_takes_any_number_of_runs(runs: Path, tiny_run: Any, call: Any) -> None:
    one, two, weak = runs / "group" / "seed-1", runs / "group" / "seed-2", runs / "weak"
    answer = call("compare", one, two, weak, tiny_run.pairs)
    text = answer.out.decode()
    assert answer.code == 0, answer.err
    assert "p-values are corrected for the 2 comparisons" in text and "≤ 0.00" in text
    assert "C: worse than A in character error rate" in text
    assert "perplexity per token" in text
    plain = json.loads(call("compare", one, two, weak, tiny_run.pairs, "--json").out)
    assert [score["name"] for score in plain["metrics"][0]["scores"]] == ["seed-1", "seed-2", "weak"]
    pair = json.loads(call("compare", one, weak, tiny_run.pairs, "--json").out)
    first, last = pair["scores"][0], plain["metrics"][0]["scores"][2]["difference"]
    assert (first["difference"], first["low"], first["high"]) == (last["value"], last["low"], last["high"])
    assert last["p_value"] == pytest.approx(2 * first["p_value"]) and last["basis"] == "rows"


def test_groups_of_seeds_are_compared_by_their_means(runs: Path, tiny_run: Any, call: Any) -> None:
    answer = call("compare", runs / "group", runs / "weak-group", tiny_run.pairs, "--json")
    assert answer.code == 0, answer.err
    group, weak = json.loads(answer.out)["metrics"][0]["scores"]
    expected = compare_means(group["seeds"]["values"], weak["seeds"]["values"])
    assert expected is not None and weak["difference"]["basis"] == "seeds"
    assert [weak["difference"][key] for key in ("value", "low", "high", "p_value")] == pytest.approx([*expected])
    text = call("compare", runs / "group", runs / "weak", tiny_run.pairs).out.decode()
    assert "(mean of 3 seeds)" in text and "over seeds" in text and "paired bootstrap" in text


def test_groups_of_seeds_are_compared_from_python_as_the_docs_say(runs: Path, tiny_run: Any) -> None:
    several = dragoman.compare([runs / "group", runs / "weak-group"], tiny_run.pairs)
    assert isinstance(several, dragoman.SeveralComparison)
    headline = several.metrics[0]
    assert [score.name for score in headline.scores] == ["group", "weak-group"]
    difference = headline.scores[1].difference
    assert headline.scores[0].difference is None and difference is not None and 0 <= difference.p_value <= 1
    assert "(mean of 3 seeds)" in several.to_text()


def test_a_run_among_the_files_is_refused(runs: Path, tiny_run: Any, call: Any) -> None:
    one, weak = runs / "group" / "seed-1", runs / "weak"
    for arguments, said in (
        ((one, tiny_run.pairs), "two runs or more"),
        ((one, weak), "needs a file"),
        ((one, tiny_run.pairs, weak), "name all runs first"),
    ):
        answer = call("compare", *arguments)
        assert answer.code == 2 and said in answer.err


def test_a_comparison_needs_two() -> None:
    with pytest.raises(UserError, match="two runs or more"):
        compare_several([Entrant("a", [])], [], "file")
