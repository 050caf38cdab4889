"""Targets that are classes: outputs are labels, with probabilities of all of them and scores of each."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dragoman
from dragoman import runtime
from dragoman.data import tokenizers
from dragoman.data.tokenizers import TokenizerConfig
from dragoman.data.vocabulary import EOS
from dragoman.errors import UserError
from dragoman.evaluation import metrics
from dragoman.evaluation.run_data import read_test_examples
from dragoman.export.portable import write_portable
from dragoman.files.reading import Unverified
from dragoman.recipe.classes import find_classes
from dragoman.runtime.library import why_unavailable
from dragoman.search.rules import AllowOnly, permitted
from dragoman.studio.inspection import inspect
from dragoman.studio.records import PredictRequest
from dragoman.studio.views.errors import describe_errors
from dragoman.studio.views.runs import describe_run
from dragoman.training.plan import plan

LABELS = ("negative", "neutral", "positive")
SMALL: dict[str, Any] = {
    "source": {"embedding": 16},
    "encoder": {"width": 16},
    "decoder": {"width": 32, "embedding": 16, "dropout": 0.1},
    "target": {"tokenizer": {"kind": "characters"}},
    "training": {"threads": 1, "batch_tokens": 256, "max_updates": 60, "average": 2},
}


def write_rows(path: Path, rows: int = 200) -> Path:
    """Write strings of letters with a label that says which letter is more frequent; one label is rare."""
    generator = random.Random(3)
    seen: dict[str, str] = {}
    while len(seen) < rows:
        text = "".join(generator.choices("ab", weights=(1, 2), k=generator.randint(4, 9)))
        balance = text.count("a") - text.count("b")
        seen[text] = LABELS[1 + (balance > 0) - (balance < 0)]
    path.write_text("".join(f"{text}\t{label}\n" for text, label in seen.items()), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    dragoman.train(write_rows(folder / "rows.tsv"), out=folder / "run", settings=SMALL)
    return folder / "run"


@pytest.fixture(scope="module")
def system(run: Path) -> dragoman.System:
    return dragoman.load(run)


def test_the_n_best_are_labels(system: dragoman.System, run: Path, call: Any) -> None:
    assert sorted(system.classes) == sorted(LABELS)
    for prediction in system.predict(["abba", "zzz", "b", "a" * 40], n_best=3):
        assert sorted(output.text for output in prediction.outputs) == sorted(LABELS)
        assert all(output.finished for output in prediction.outputs)
        scores = [output.log_prob for output in prediction.outputs]
        assert scores == sorted(scores, reverse=True), "the most probable label first, however long it is"
    assert {output.text for output in system.predict("abba", sample=True, n_best=50).outputs} <= {*LABELS}
    assert sorted(call("predict", run, "--n-best", 3, stdin=b"abba\n").lines[0].split("\t")) == sorted(LABELS)
    assert len(system.predict("abba", n_best=8).outputs) == 3, "there are no more labels"


def test_probabilities_are_those_of_forced_scoring(system: dragoman.System, run: Path, call: Any) -> None:
    inputs = ["abba", "bbbb", "", "aab"]
    predictions = system.predict(inputs, n_best=3)
    for text, prediction in zip(inputs, predictions, strict=True):
        if not text:
            assert prediction.probabilities is None
            continue
        forced = np.exp([scored.log_prob for scored in system.score([text] * 3, LABELS)])
        assert prediction.probabilities is not None
        own = prediction.raw_probabilities
        assert own is not None and sum(own.values()) == pytest.approx(1)
        assert [own[label] for label in LABELS] == pytest.approx(forced / forced.sum(), abs=1e-4)
        assert sum(prediction.probabilities.values()) == pytest.approx(1)
        assert list(own) == [output.text for output in prediction.outputs]
    printed = json.loads(call("predict", run, "--json", stdin=b"abba\n").lines[0])
    assert printed["probabilities"] == pytest.approx(dict(predictions[0].probabilities or {}), abs=1e-6)
    assert printed["raw_probabilities"] == pytest.approx(dict(predictions[0].raw_probabilities or {}), abs=1e-6)
    assert system.predict("abba", probabilities=False).probabilities is None
    assert "p(positive)" in predictions.to_pandas().columns
    assert "probability" in predictions[0]._repr_html_()


def test_an_ensemble_is_a_classifier_too(system: dragoman.System, run: Path) -> None:
    both = dragoman.load([run, run])
    alone = system.predict("abba").raw_probabilities
    assert both.predict("abba").raw_probabilities == pytest.approx(alone, abs=1e-4)


def test_forbidden_classes_and_forced_beginnings(system: dragoman.System) -> None:
    left = system.predict("bbbb", forbid="negative", n_best=2)
    assert sorted(output.text for output in left.outputs) == ["neutral", "positive"]
    assert {output.text for output in system.predict("bbbb", prefix="ne", n_best=2).outputs} == {"negative", "neutral"}
    with pytest.raises(UserError, match="every class of this run contains what is forbidden"):
        system.predict("bbbb", forbid=["i", "e"])


@pytest.mark.parametrize("kind", ["characters", "symbols"])
def test_a_forced_beginning_is_continued_to_a_label_however_it_is_tokenised(
    kind: str, tmp_path: Path, call: Any
) -> None:
    target: dict[str, Any] = {"target": {"tokenizer": {"kind": kind}}}
    settings = SMALL | target | {"training": SMALL["training"] | {"max_updates": 4}}
    run = tmp_path / "run"
    dragoman.train(write_rows(tmp_path / "rows.tsv"), out=run, settings=settings)
    asked: list[Any] = [dragoman.load(run, engine="torch")]
    if why_unavailable() is None:
        write_portable(dragoman.System.load(run, "cpu"), run, ["abba"])
        asked += [dragoman.load(run, engine="native"), runtime.load(run / "model.dragoman")]
    for ask in asked:
        assert [each.text for each in ask.predict(["ab", "ba"], prefix="neut")] == ["neutral", "neutral"]
        assert [each.text for each in ask.predict(["ab", "ba"], prefix=["posit", "neut"])] == ["positive", "neutral"]
        found = ask.predict("ab", prefix="ne", n_best=3).outputs
        assert sorted(each.text for each in found) == ["negative", "neutral"]
        assert ask.predict("ab", prefix="ne", forbid="negative").text == "neutral"
        with pytest.raises((UserError, runtime.UserError), match=r"no label of this \w+ begins with 'zebra'.*neutral"):
            ask.predict(["ab"], prefix="zebra")
        with pytest.raises((UserError, runtime.UserError), match="every label that begins with 'posi' is forbidden"):
            ask.predict(["ab"], prefix="posi", forbid="positive")
    assert call("predict", run, "--prefix", "neut", stdin=b"abba\n").lines == ["neutral"]
    refused = call("predict", run, "--prefix", "zebra", stdin=b"abba\n")
    assert refused.code == 2 and not refused.out and "no label of this run begins with 'zebra'" in refused.err


def test_the_studio_forces_labels_by_text_and_by_tokens(system: dragoman.System) -> None:
    def outputs(**request: Any) -> list[str]:
        found = inspect(system, "bbbb", PredictRequest(input={"source": "bbbb"}, n_best=3, **request))
        return sorted(output.text for output in found.prediction.outputs)

    assert outputs(prefix="ne") == ["negative", "neutral"]
    assert outputs(prefix_tokens=system.target.encode("neu")) == ["neutral"]
    assert outputs(prefix="ne", forbidden=["negative"]) == ["neutral"]
    with pytest.raises(UserError, match="no label of this run begins with 'en'"):
        outputs(prefix_tokens=system.target.encode("en"))


def test_the_studio_ranks_labels_by_their_probability_and_compares_them_whole(
    system: dragoman.System, run: Path
) -> None:
    assert describe_run(run, "run").search.normalize == "none"
    rows, side = read_test_examples(system, run)
    errors = describe_errors(system, rows, side, "run")
    assert [metric.name for metric in errors.metrics] == ["exact"]
    assert all(len(row.spans) == 1 for row in errors.rows)
    request = PredictRequest(input={"source": "bbbb"}, forbidden=["negative"])
    assert "negative" not in [output.text for output in inspect(system, "bbbb", request).prediction.outputs]


def test_the_report_has_accuracy_once_with_a_baseline_and_every_class(run: Path, call: Any) -> None:
    rows = run.parent / "rows.tsv"
    text = call("evaluate", run, rows).out.decode()
    assert text.count("accuracy  ") == 1 and "exact match" not in text and "sequence error rate" not in text
    assert "baseline" in text and "always 'negative'" in text and "precision" in text
    report = dragoman.evaluate(run, rows)
    assert isinstance(report, dragoman.Report)
    again = dragoman.Report.from_json(json.loads(json.dumps(report.to_json())))
    assert again == report and again.to_text() == report.to_text()
    outputs = [one.text for one in dragoman.load(run).predict([line.split("\t")[0] for line in lines(rows)])]
    gold = [line.split("\t")[1] for line in lines(rows)]
    assert report.value == pytest.approx(100 * np.mean([a == b for a, b in zip(outputs, gold, strict=True)]))
    saved = json.loads((run / "evaluation.json").read_text())
    assert saved["scores"]["exact"]["label"] == "accuracy" and saved["classes"]["majority"] == "negative"


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def test_precision_recall_and_f1_by_hand() -> None:
    gold = ["a"] * 6 + ["b"] * 3 + ["c"]
    outputs = ["a"] * 4 + ["b"] * 2 + ["b", "b", "a"] + ["a"]
    report = metrics.measure_outputs(outputs, [[one] for one in gold], metrics=["exact"],
                                     classes=["a", "b", "c"], resamples=10)  # fmt: skip
    found = report.classes
    assert found is not None
    assert (found.majority, found.baseline) == ("a", 60)
    by_label = {each.label: (each.rows, each.outputs, each.precision, each.recall) for each in found.classes}
    assert by_label["a"] == (6, 6, pytest.approx(400 / 6), pytest.approx(400 / 6))
    assert by_label["b"] == (3, 4, 50, pytest.approx(200 / 3))
    assert by_label["c"] == (1, 0, 0, 0)
    assert found.macro_f1 == pytest.approx((400 / 6 + 2 * 50 * 200 / 3 / (50 + 200 / 3) + 0) / 3)
    assert [score.label for score in report.scores.values()] == ["accuracy"]


@pytest.mark.parametrize(
    ("train", "held_out", "wanted", "classes"),
    [
        (["yes", "no"] * 10, ["no"], "auto", {"yes", "no"}),
        (["yes", "no"] * 10, ["perhaps"], "auto", set()),  # a target that training never saw: not a closed set
        (["yes", "no"] * 10, ["no"], "no", set()),
        (["yes", "no", "perhaps", "never"], ["no"], "auto", set()),  # seen once each
        (["yes", "no", "perhaps", "never"], ["no"], "yes", {"yes", "no", "perhaps", "never"}),
        (["a b c d", "no"] * 10, [], "auto", set()),  # a sentence
        (["only"] * 10, [], "auto", set()),
    ],
)
def test_classes_are_few_short_and_repeated(
    train: Sequence[str], held_out: Sequence[str], wanted: str, classes: set[str]
) -> None:
    target = tokenizers.fit(TokenizerConfig(kind="characters"), train, "target")
    assert {*find_classes(train, held_out, target, wanted)} == classes


def test_too_many_classes_are_refused() -> None:
    targets = [f"label {index}" for index in range(300)]
    target = tokenizers.fit(TokenizerConfig(kind="characters"), targets, "target")
    with pytest.raises(UserError, match=r"target\.classes = yes: .* 300 distinct targets"):
        find_classes(targets, [], target, "yes")


def test_the_plan_says_so_and_how_to_change_it(tmp_path: Path) -> None:
    rows = write_rows(tmp_path / "rows.tsv")
    planned = plan(rows, settings=SMALL)
    (reason,) = [reason for reason in planned.reasons if reason.startswith("classes:")]
    assert "3 labels (negative" in reason and "--set target.classes=no" in reason
    assert "metric: accuracy, because targets are 3 classes: right or wrong as a whole" in planned.reasons
    free = plan(rows, settings="target.classes=no")
    assert free.system.classes == () and len(free.metric.metrics) > 1


def test_a_run_of_an_earlier_version_loads_without_classes(run: Path, tmp_path: Path) -> None:
    old = Path(shutil.copytree(run, tmp_path / "old"))
    config = json.loads((old / "config.json").read_text())
    del config["classes"]
    config.pop("sha256")  # earlier versions wrote none
    del config["recipe"]["target"]["classes"]
    del config["recipe"]["search"]["only"]
    (old / "config.json").write_text(json.dumps(config))
    with pytest.warns(Unverified):
        system = dragoman.load(old)
    assert system.classes == () and system.predict("abba").probabilities is None


def test_the_rule_leaves_what_is_forced_off_its_outputs_free() -> None:
    rule = AllowOnly([(5, 6), (5, 7, 8)], eos=1)
    assert permitted([rule], [5, 6], 10).nonzero()[0].tolist() == [1]
    assert permitted([rule], [5, 7], 10).nonzero()[0].tolist() == [8]
    assert permitted([rule], [9, 9], 10).all() and permitted([rule], [5, 9], 10).all()


def test_a_label_that_the_run_does_not_know_is_named(tmp_path: Path, call: Any) -> None:
    settings = SMALL | {"target": {"tokenizer": {"kind": "symbols"}}}
    settings["training"] = settings["training"] | {"max_updates": 2}
    dragoman.train(write_rows(tmp_path / "rows.tsv"), out=tmp_path / "run", settings=settings)
    file = tmp_path / "test.tsv"
    file.write_text("abba\tneutral\nbbb\tnegative\naab\tmixed\n", encoding="utf-8")
    evaluated = call("evaluate", tmp_path / "run", file).out.decode()
    assert "accuracy: references that are no class of this run: 1 of 3 (mixed)" in evaluated
    assert "perplexity per token: references with unknown tokens, scored as <unk>: 1 of 3" in evaluated
    assert (
        "targets with unknown tokens, scored as <unk>: 1 (line 3: mixed)" in call("score", tmp_path / "run", file).err
    )
    scored = dragoman.score(tmp_path / "run", file)
    assert [each.unknown for each in scored] == [0, 0, 1]
    assert "unknown" not in repr(scored[0]) and "unknown tokens 1" in repr(scored[2])
    file.write_text("abba\tneutral\nbbb\tnegative\n", encoding="utf-8")
    assert b"no class" not in call("evaluate", tmp_path / "run", file).out
    assert "unknown" not in call("score", tmp_path / "run", file).err


def test_check_counts_the_labels_that_train_takes_as_classes(tmp_path: Path, call: Any) -> None:
    rows = write_rows(tmp_path / "rows.tsv")
    targets = [line.split("\t")[1] for line in rows.read_text().splitlines()]
    counts = {label: targets.count(label) for label in sorted(LABELS, key=targets.count, reverse=True)}
    most, count = next(iter(counts.items()))
    shown = call("check", rows).out.decode()
    assert "Classes: the targets are 3 labels, and train makes a classifier of them" in shown
    for label, own in counts.items():
        assert any(line.split() == [label, f"{own}", f"{own / 200:.1%}"] for line in shown.splitlines())
    assert f"always answering {most!r} would be right for {count / 200:.1%} of the rows" in shown
    plain = json.loads(call("check", rows, "--json").out)
    assert plain["classes"] == {"counts": counts, "majority": most, "share": count / 200}
    assert max(map(len, dragoman.check(rows).to_text(60).splitlines()[1:])) <= 60
    other = tmp_path / "other.tsv"
    other.write_text("ab\tanother label\n")  # then train makes no classifier
    assert "Classes" not in call("check", rows, "--dev", other).out.decode()
    texts = tmp_path / "texts.tsv"
    texts.write_text("".join(f"{target} {row}\tword {row}\n" for row, target in enumerate(targets)))
    assert dragoman.check(texts).labels is None


def test_probabilities_are_shown_without_label_smoothing(system: dragoman.System, run: Path, call: Any) -> None:
    confidence = runtime.confidence.Confidence(
        "exact", None, 0.1, system.target.size, runtime.confidence.Logistic(0.0, {}), None, {}
    )
    smoothed = replace(system, confidence=confidence)
    session = smoothed.session()
    prediction = smoothed.predict("abba")
    own, shown = prediction.raw_probabilities, prediction.probabilities
    assert own is not None and shown is not None
    assert own == pytest.approx(replace(system, confidence=None).predict("abba").probabilities)
    totals = {
        label: float(confidence.log_probs(smoothed.score("abba", label).log_probs).sum()) for label in system.classes
    }
    together = sum(map(np.exp, totals.values()))
    assert shown == pytest.approx({label: np.exp(total) / together for label, total in totals.items()}, abs=1e-4)
    assert shown != pytest.approx(own, abs=1e-3)
    assert (
        prediction.to_json(raw=True)["raw_probabilities"] == own
        and prediction.to_row()["p(neutral)"] == shown["neutral"]
    )
    # the same is true of entropies, which are those of the tokens' probabilities
    prepared = session.prepare("abba").read()
    (path,) = session.force(prepared, [(*system.target.encode("neutral"), EOS)], alternatives=system.target.size)
    expected = smoothed.token_probabilities(path.alternative_log_probs)
    expected /= expected.sum(1, keepdims=True)
    assert path.entropy == pytest.approx(-(expected * np.log2(expected)).sum(1), abs=1e-4)


def test_a_target_that_is_no_label_is_scored_with_a_note(
    system: dragoman.System, run: Path, tmp_path: Path, call: Any
) -> None:
    rows = tmp_path / "rows.tsv"
    rows.write_text("abba\tneutral\nbbbb\tna\n")  # which the tokeniser of characters can write
    answer = call("score", run, rows)
    assert "1 of 2 targets are no label of this run (line 2: 'na')" in answer.err
    assert all(label in answer.err for label in LABELS)
    assert [json.loads(line)["is_label"] for line in call("score", run, rows, "--json").lines] == [True, False]
    assert "no label of this run" in repr(system.score("bbbb", "na"))
    assert "label" not in repr(system.score("abba", "neutral"))


def test_what_no_label_contains_cannot_be_forbidden(system: dragoman.System) -> None:
    with pytest.raises(UserError, match="no label of this run contains 'xyz'"):
        system.predict("abba", forbid="xyz")
