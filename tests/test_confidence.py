"""Confidence: fitted on dev, the same in every engine, honest about other searches, and used to abstain."""

from __future__ import annotations

import json
import math
import re
import shutil
import subprocess
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dragoman
from dragoman import runtime
from dragoman.errors import OtherSearch, UserError
from dragoman.evaluation.calibrate import CANDIDATES, choose_logistic, fit_smoothing
from dragoman.evaluation.metrics.calibration import (
    calibration_error,
    error_by_chance,
    ideal_risk,
    judge,
    measure_confidence,
    risk_at,
)
from dragoman.export.node import find_node, read_runtime
from dragoman.inference.ensembles import ensemble
from dragoman.program.file import replace_about
from dragoman.runs.confidence import CONFIDENCE, confidence_file, write_confidence
from dragoman.runtime.confidence import (
    FEATURES,
    OF_ONE,
    Confidence,
    Logistic,
    output_features,
    search_facts,
    without_smoothing,
)
from dragoman.runtime.container import Container

INPUTS = ["abc", "hgfed", "ab", "cagebad", "ddd"]
ONE = Confidence("exact", None, 0.1, 12, Logistic(0.5, {"total": 1.0}), None, {"beam": 5})


@pytest.fixture
def run(tiny_run: Any, tmp_path: Path) -> Path:
    """A copy of the tiny run that a test may write into."""
    folder = tmp_path / "run"
    shutil.copytree(tiny_run.folder, folder)
    return folder


@pytest.fixture(scope="module")
def telling_run(native_run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy whose confidence tells outputs apart, which too few right ones would not let a fit do."""
    folder = tmp_path_factory.mktemp("telling") / "run"
    shutil.copytree(native_run.folder, folder)
    system = dragoman.load(folder, engine="native")
    assert system.confidence is not None
    best = Logistic(2.0, {"total": 0.3, "raw_mean": 0.2, "doubt": -0.1, "length": 0.5})
    others = Logistic(0.5, {"total": 0.3, "behind": -0.4})
    confidence = replace(system.confidence, smoothing=0.1, best=best, others=others)
    write_confidence(folder, system.made_of, confidence)
    container = Container.open(folder / "model.dragoman")
    written = replace_about(container, {"confidence": confidence.to_json()})
    (folder / "model.dragoman").write_bytes(written)
    return folder


# ---- the formula


@given(st.floats(0.0, 0.4), st.integers(2, 500), st.lists(st.floats(0.001, 1.0), min_size=2, max_size=8))
def test_smoothing_is_taken_away(smoothing: float, vocabulary: int, shares: list[float]) -> None:
    """What label smoothing trains a model to say becomes the probability again, and no order changes."""
    true = np.array(shares) / max(1.0, sum(shares))
    smoothed = (1 - smoothing) * true + smoothing / vocabulary
    found = np.exp(without_smoothing(np.log(smoothed), smoothing, vocabulary))
    assert np.allclose(found, np.maximum(true, 0.01 * smoothed), atol=1e-9)
    assert (np.diff(found[np.argsort(smoothed)]) >= -1e-12).all()


def test_an_impossible_token_stays_impossible() -> None:
    assert without_smoothing(np.array([-math.inf, 0.0]), 0.1, 10).tolist() == [-math.inf, 0.0]
    assert 0 < (ONE.rate([((-math.inf, -0.1), True)])[0] or 0) < 1e-8
    assert all(map(math.isfinite, output_features([], False, 0.1, 10).values()))


def test_numbers_survive_json_and_others_are_refused() -> None:
    plain = json.loads(json.dumps(ONE.to_json()))
    assert Confidence.from_json(plain) == ONE
    wrong: list[dict[str, Any]] = [
        {"format": 2},
        {"smoothing": 1.0},
        {"smoothing": "nan"},
        {"vocabulary": 0},
        {"best": {"bias": 0, "weights": {"secret": 1}}},
        {"best": {"bias": math.inf, "weights": {}}},
        {"best": {"bias": 0, "weights": {"behind": 1}}},
        {"best": []},
        {"search": 3},
        {"threshold": [1]},
    ]
    for change in wrong:
        with pytest.raises(ValueError, match=r"it|one of"):
            Confidence.from_json({**plain, **change})
    with pytest.raises(ValueError, match="does not have"):
        Confidence.from_json([])


def test_only_what_changes_the_search_counts() -> None:
    greedy = {"beam": 1, "normalize": "none", "sample": False, "temperature": 0.5, "forbidden": (1, 2)}
    assert search_facts(greedy) == {"beam": 1, "sample": False, "forbidden": 2}
    assert search_facts({**greedy, "normalize": "gnmt"}) == search_facts(greedy)
    sampling = search_facts({**greedy, "sample": True})
    assert sampling == {"sample": True, "temperature": 0.5, "forbidden": 2}
    assert ONE.differences({"beam": 5}) == [] and ONE.differences({"beam": 2}) == ["beam = 2 in place of 5"]


# ---- the fit


def made_up(rows: int, seed: int = 0) -> tuple[list[dict[str, float]], np.ndarray]:
    """Return outputs whose tokens are right with the probability that the model says."""
    generator = np.random.default_rng(seed)
    features, right = [], []
    for _ in range(rows):
        sure = generator.beta(6, 1, size=generator.integers(1, 9))
        features.append(output_features(np.log(sure), True, 0.0, 30))
        right.append(bool((generator.random(len(sure)) < sure).all()))
    return features, np.array(right)


def test_the_fit_is_calibrated_on_other_rows() -> None:
    best, held_out, facts = choose_logistic(*made_up(800))
    features, right = made_up(2000, seed=1)
    found = np.array([best.probability(each) for each in features])
    assert calibration_error(found, right) < error_by_chance(found) + 0.03
    assert facts["log_loss"] < facts["baseline"] - 0.05
    closed = right.mean() - (1 - risk_at(found, right, 0.8).risk)
    assert closed < 0.3 * (ideal_risk(right.mean(), 0.8) - (1 - right.mean()))
    assert len(held_out) == 800


@pytest.mark.parametrize("rows", [1, 2, 9, 20])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_few_rows_and_all_right_or_wrong_give_no_certainty(rows: int, share: float) -> None:
    features, _ = made_up(rows)
    best, held_out, _ = choose_logistic(features, np.full(rows, bool(share)))
    for found in (held_out, [best.probability(each) for each in features]):
        assert all(0 < each < 1 and abs(each - share) < 0.6 for each in found)
    extreme = output_features(np.log([1e-9] * 40), False, 0.0, 30)
    assert 0 <= best.probability(extreme) <= 1


def test_without_a_clue_the_share_of_right_outputs_is_taken() -> None:
    features, _ = made_up(400)
    chosen = []
    for seed in range(4):
        right = np.random.default_rng(seed).random(400) < 0.3
        best, _, facts = choose_logistic(features, right)
        chosen.append(facts["chosen"])
        assert np.mean([best.probability(each) for each in features]) == pytest.approx(right.mean(), abs=0.02)
    assert chosen.count(CANDIDATES[0][0]) >= 3


def test_smoothing_is_found_again() -> None:
    generator = np.random.default_rng(0)
    true = generator.beta(8, 1, size=20_000)
    for smoothing in (0.0, 0.1, 0.2):
        likeliest = np.log((1 - smoothing) * true + smoothing / 40)
        found = fit_smoothing(likeliest, generator.random(20_000) < true, 40)
        assert abs(found - smoothing) <= 0.02


def test_what_is_right() -> None:
    assert judge("exact", None, ["a", "b"], [["a"], ["a", "c"]]).tolist() == [True, False]
    assert judge("chrf", 50.0, ["some words", "x"], [["some word"], ["other"]]).tolist() == [True, False]


# ---- measures


def test_measures_by_hand() -> None:
    sure, right = np.array([0.95, 0.95, 0.55, 0.15]), np.array([1.0, 0.0, 1.0, 0.0])
    assert calibration_error(sure, right) == pytest.approx((abs(1.9 - 1) + 0.45 + 0.15) / 4)
    assert risk_at(sure, right, 1.0).risk == 0.5
    assert risk_at(sure, right, 0.75).risk == pytest.approx(1 / 3)
    assert risk_at(sure, right, 0.25).risk == 0.5  # either of two that are equally sure
    assert ideal_risk(0.5, 0.8) == pytest.approx(0.375) and ideal_risk(0.9, 0.8) == 0
    report = measure_confidence(sure.tolist(), [True, False, True, False], "is right")
    assert report is not None
    assert [each.rows for each in report.bins] == [0, 1, 0, 0, 0, 1, 0, 0, 0, 2]
    assert type(report).from_json(json.loads(json.dumps(report, default=lambda each: {
        name: getattr(each, name) for name in each.__slots__
    }))) == report  # fmt: skip
    assert measure_confidence([], [], "") is None


# ---- a run


def test_training_leaves_a_confidence(tiny_run: Any) -> None:
    system = dragoman.load(tiny_run.folder, engine="torch")
    predictions = system.predict(INPUTS, n_best=3)
    for prediction in predictions:
        assert all(output.confidence is not None and 0 < output.confidence < 1 for output in prediction.outputs)
        assert prediction.confidence == prediction.outputs[0].confidence and prediction.confidence_note is None
    alone = system.predict(INPUTS)
    assert [each.confidence for each in alone] == [each.confidence for each in predictions]
    assert system.predict("").confidence is None
    assert "## Confidence" in (tiny_run.folder / "README.md").read_text()
    plain = json.loads((tiny_run.folder / "evaluation.json").read_text())["confidence"]
    assert plain["rows"] > 0 and len(plain["bins"]) == 10


@pytest.mark.parametrize("engine", ["native", "numpy"])
def test_every_engine_has_the_same_confidence(telling_run: Path, engine: str) -> None:
    expected = dragoman.load(telling_run, engine="torch")
    found = dragoman.load(telling_run, engine=engine)
    for settings in ({}, {"beam": 1}, {"n_best": 3}, {"sample": True, "seed": 3}):
        asked = {"attention": False, **settings}
        for ours, theirs in zip(expected.predict(INPUTS, **asked), found.predict(INPUTS, **asked), strict=True):
            pairs = zip(ours.outputs, theirs.outputs, strict=True)
            assert all(a.confidence == pytest.approx(b.confidence, abs=1e-4) for a, b in pairs)
            assert ours.confidence_note == theirs.confidence_note


def test_node_has_the_same_confidence(telling_run: Path, tmp_path: Path) -> None:
    """The scripts of exported pages have the formula once more."""
    node = find_node()
    if node is None:
        pytest.skip("there is no Node")
    for name, content in read_runtime().items():
        (tmp_path / name).write_bytes(content)
    asked = [{"input": text, "options": {"nBest": 3}} for text in INPUTS]
    given = "".join(json.dumps(each) + "\n" for each in asked)
    command = [node, str(tmp_path / "ask.mjs"), str(telling_run / "model.dragoman"), "--json"]
    found = subprocess.run(command, input=given, capture_output=True, text=True, check=True, timeout=60).stdout
    system = dragoman.load(telling_run, engine="native")
    for prediction, line in zip(system.predict(INPUTS, n_best=3), found.splitlines(), strict=True):
        own = [output.confidence for output in prediction.outputs]
        assert [each["confidence"] for each in json.loads(line)["outputs"]] == pytest.approx(own, abs=1e-6)


def test_the_page_about_c_names_every_feature() -> None:
    """A program in C computes the confidence by what that page says."""
    page = (Path(__file__).parent.parent / "native" / "README.md").read_text(encoding="utf-8")
    table = [line for line in page.splitlines() if line.strip().startswith("| `")]
    named = {name for line in table for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert set(OF_ONE) <= named
    assert "`behind`" in page and set(FEATURES) == {*OF_ONE, "behind"}


def test_the_runtime_has_the_same_confidence(telling_run: Path) -> None:
    system = dragoman.load(telling_run, engine="native")
    model = runtime.load(telling_run / "model.dragoman")
    for settings in ({}, {"beam": 2}, {"n_best": 2}):
        ours, theirs = system.predict(INPUTS, **settings), model.predict(INPUTS, **settings)
        for one, other in zip(ours, theirs, strict=True):
            assert one.confidence_note == other.confidence_note
            pairs = zip(one.outputs, other.outputs, strict=True)
            assert all(a.confidence == pytest.approx(b.confidence, abs=1e-6) for a, b in pairs)
    low = model.predict("abc", abstain=1.0)
    assert low.abstained and low.text == "" and low.confidence == model.predict("abc").confidence
    assert low.to_json()["abstained"] and not model.predict("abc", abstain=0.0).abstained
    with pytest.raises(UserError, match="from 0 to 1"):
        model.predict("abc", abstain=2)


def test_another_search_is_said_once(tiny_run: Any) -> None:
    system = dragoman.load(tiny_run.folder, engine="torch")
    for settings in ({"beam": 2}, {"sample": True}, {"prefix": "a"}, {"forbid": "b"}):
        note = system.predict("abc", **settings).confidence_note
        assert note is not None and "another search" in note
        with pytest.warns(OtherSearch, match="another search") as told:
            system.predict(INPUTS, abstain=0.5, **settings)
        assert len(told) == 1


def test_constraints_are_another_search(telling_run: Path) -> None:
    system = dragoman.load(telling_run)
    assert system.predict("abc").confidence_note is None
    note = system.predict("abc", lexicon=["cba", "ab"]).confidence_note
    assert note is not None and "constraints" in note


def test_unsure_outputs_are_left_out(telling_run: Path) -> None:
    system = dragoman.load(telling_run, engine="torch")
    usual = system.predict(INPUTS)
    least = sorted(each.confidence or 0 for each in usual)[2]
    for whole, found in zip(usual, system.predict(INPUTS, abstain=least), strict=True):
        assert found.abstained == ((whole.confidence or 0) < least) and found.confidence == whole.confidence
        assert found.text == ("" if found.abstained else whole.text)
        assert ("abstained" in found.to_json()) == found.abstained
        row = found.to_row()
        assert ("abstained" in row) == found.abstained and row["confidence"] == whole.confidence
        assert (row["log_prob"] is None) == (row["output"] is None) == found.abstained
    for wrong in (-0.1, 1.5, "high", True):
        with pytest.raises(UserError, match="from 0 to 1"):
            system.predict("abc", abstain=wrong)


def test_other_weights_have_no_confidence(run: Path) -> None:
    plain = json.loads((run / CONFIDENCE).read_text())
    plain.pop("sha256")
    (run / CONFIDENCE).write_text(json.dumps({**plain, "weights": ["0" * 64]}))
    system = dragoman.load(run, engine="torch")
    assert system.predict("abc").confidence is None
    with pytest.raises(UserError, match=r"other weights.*dragoman calibrate"):
        system.predict("abc", abstain=0.5)
    (run / CONFIDENCE).unlink()
    with pytest.raises(UserError, match="has no confidence"):
        dragoman.load(run, engine="torch").predict("abc", abstain=0.5)


def test_a_damaged_confidence_is_refused(run: Path) -> None:
    text = (run / CONFIDENCE).read_text()
    (run / CONFIDENCE).write_text(text.replace('"bias": ', '"bias": 1', 1))
    with pytest.raises(UserError, match=r"confidence\.json.*damaged|confidence\.json.*SHA-256"):
        dragoman.load(run, engine="torch")


def test_resuming_keeps_it_and_more_updates_fit_it_again(run: Path, tiny_run: Any) -> None:
    from dragoman.training.run import train

    before = (run / CONFIDENCE).read_bytes()
    train(tiny_run.pairs, out=run, settings=tiny_run.settings)
    assert (run / CONFIDENCE).read_bytes() == before
    (run / CONFIDENCE).write_bytes(before[:-9])  # damaged: fitted again, with the same numbers
    system = train(tiny_run.pairs, out=run, settings=tiny_run.settings)
    assert (run / CONFIDENCE).read_bytes() == before and system.confidence is not None
    longer = {**tiny_run.settings, "training": {**tiny_run.settings["training"], "max_updates": 64}}
    system = train(tiny_run.pairs, out=run, settings=longer)
    assert (run / CONFIDENCE).read_bytes() != before
    assert dragoman.load(run, engine="torch").predict("abc").confidence == system.predict("abc").confidence


def test_runs_together_have_their_own(
    run: Path, tiny_run: Any, tmp_path: Path, pairs_file: Callable[..., Path]
) -> None:
    both = dragoman.load([run, tiny_run.folder])
    assert both.predict("abc").confidence is None
    with pytest.raises(UserError, match="have a confidence of their own"):
        both.predict("abc", abstain=0.5)
    before = (run / CONFIDENCE).read_bytes()
    dev = pairs_file(tmp_path / "dev.tsv", 30, 5)
    fit = dragoman.calibrate(run, dev, ensemble=[tiny_run.folder], workers=1)
    assert (run / CONFIDENCE).read_bytes() == before and (run / confidence_file(both.made_of)).exists()
    assert dragoman.load([run, tiny_run.folder]).confidence == fit.confidence
    assert ensemble([dragoman.load(run, engine="torch")]).confidence is not None  # the mean of one is itself


def test_calibrate_replaces_it_everywhere(
    native_run: Any, tmp_path: Path, pairs_file: Callable[..., Path], call: Any
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(native_run.folder, folder)
    dev = pairs_file(tmp_path / "dev.tsv", 25, 7)
    done = call("calibrate", folder, dev, "--beam", 2, "--workers", 1)
    assert done.code == 0 and "expected calibration error" in done.out.decode() and CONFIDENCE in done.err
    system = dragoman.load(folder, engine="native")
    assert system.confidence is not None and system.confidence.search["beam"] == 2
    assert runtime.load(folder / "model.dragoman").confidence == system.confidence
    assert (folder / "README.md").read_text().count("## Confidence") == 1
    assert "fitted on 25 dev rows" in (folder / "README.md").read_text()
    assert json.loads(call("calibrate", folder, dev, "--json").out)["report"]["rows"] == 25
    assert "confidence" in call("evaluate", folder, dev, "--workers", 1).out.decode()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dragoman.evaluate(folder, dev, workers=1).confidence is not None
    again = dragoman.calibrate(dragoman.load(folder), dev, beam=3, workers=1)
    loaded = dragoman.load(folder).confidence
    assert loaded is not None and loaded.search["beam"] == 3 and again.confidence == loaded


# ---- the command line


def test_columns_and_left_out_lines(call: Any, telling_run: Path, tmp_path: Path) -> None:
    inputs = tmp_path / "in.txt"
    inputs.write_text("".join(f"{each}\n" for each in [*INPUTS, ""]))
    system = dragoman.load(telling_run, engine="native")
    usual = system.predict(INPUTS, n_best=2)
    rows = [line.split("\t") for line in call("predict", telling_run, inputs, "--confidence").lines]
    assert rows[:-1] == [[each.text, f"{each.confidence:.4f}"] for each in usual] and rows[-1] == ["", ""]
    rows = [line.split("\t") for line in call("predict", telling_run, inputs, "--confidence", "--n-best", 2).lines]
    assert rows[0] == [cell for each in usual[0].outputs for cell in (each.text, f"{each.confidence:.4f}")]
    least = sorted(each.confidence or 0 for each in usual)[2]
    unsure = tmp_path / "unsure.txt"
    options = ["--abstain", least, "--abstain-file", unsure]
    done = call("predict", telling_run, inputs, *options)
    assert done.lines[:-1] == ["" if (each.confidence or 0) < least else each.text for each in usual]
    assert "2 of 6 outputs left out" in done.err
    assert unsure.read_text().split() == [
        text for text, each in zip(INPUTS, usual, strict=True) if (each.confidence or 0) < least
    ]
    again = call("predict", telling_run, inputs, *options)
    assert again.code == 2 and "is there already" in again.err
    alone = call("predict", telling_run, inputs, "--abstain-file", unsure)
    assert alone.code == 2 and "--abstain 0.9" in alone.err
    answers = [json.loads(line) for line in call("predict", telling_run, inputs, "--json").lines]
    assert [each["outputs"][0]["confidence"] for each in answers[:-1]] == [each.confidence for each in usual]
    other = call("predict", telling_run, inputs, "--confidence", "--beam", 2)
    assert other.err.count("another search") == 1


def test_a_confidence_that_is_always_the_same_says_so(call: Any, run: Path) -> None:
    system = dragoman.load(run)
    assert system.confidence is not None
    constant = replace(system.confidence, best=Logistic(1.0, {}))
    report = dragoman.evaluate(replace(system, confidence=constant), [("abc", "cba")], workers=1).confidence
    assert report is not None and "the same for every output" in report.note
    write_confidence(run, system.made_of, constant)
    for option in (["--confidence"], ["--abstain", "0.5"]):
        done = call("predict", run, *option, stdin=b"abc\n")
        assert done.code == 0 and done.err.count("the same for every output") == 1


def test_the_threshold_that_is_printed_keeps_the_outputs(call: Any, run: Path) -> None:
    report = measure_confidence([0.96680, 0.9999], [True, False], "is right")
    assert report is not None
    printed = [float(line.split()[-1]) for line in report.to_lines()[-4:]]
    assert all(shown <= kept.threshold for shown, kept in zip(printed, report.risks, strict=True))
    for wrong in ("90", "-1"):
        done = call("predict", run, f"--abstain={wrong}", stdin=b"abc\n")
        assert done.code == 2 and "from 0 to 1" in done.err


def test_a_run_without_one_says_what_to_do(call: Any, run: Path) -> None:
    (run / CONFIDENCE).unlink()
    for option in (["--confidence"], ["--abstain", "0.9"]):
        done = call("predict", run, *option, stdin=b"abc\n")
        assert done.code == 2 and "dragoman calibrate" in done.err and not done.out
