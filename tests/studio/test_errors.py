"""The errors of a run, the comparison of two, and the data that they are computed on."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from dragoman.data.examples import Example
from dragoman.errors import UserError
from dragoman.evaluation.compare import compare_systems
from dragoman.evaluation.evaluate import evaluate, measure
from dragoman.evaluation.rows import decode_rows, diff_texts, row_statistics
from dragoman.evaluation.run_data import read_files, read_run_data, read_test_examples
from dragoman.inference.system import System
from dragoman.studio import records
from dragoman.studio.inspection import inspect
from dragoman.studio.views.comparison import describe_comparison
from dragoman.studio.views.errors import describe_errors
from dragoman.studio.views.prediction import describe_prediction


def compare(*arguments: Any, **options: Any) -> records.Comparison:
    return describe_comparison(compare_systems(*arguments, **options), arguments[0])


@pytest.mark.parametrize(
    ("output", "reference"),
    [("abcd", "abxd"), ("the cat sat", "the dog sat down"), ("", "x"), ("x", ""), ("", ""), ("a\u00a0b 😀", "a b 😀")],
)
def test_spans_put_together_give_both_texts(output: str, reference: str) -> None:
    spans = diff_texts(output, reference)
    assert "".join(span.output for span in spans) == output
    assert "".join(span.reference for span in spans) == reference
    assert all((span.output == span.reference) == span.same for span in spans)


def test_words_are_compared_whole() -> None:
    different = [(span.output, span.reference) for span in diff_texts("the cat sat", "the bat sat") if not span.same]
    assert different == [("cat", "bat")]


def test_labels_are_compared_whole() -> None:
    (span,) = diff_texts("entails", "neutral", whole=True)
    assert (span.same, span.output, span.reference) == (False, "entails", "neutral")
    assert diff_texts("neutral", "neutral", whole=True)[0].same


def test_the_rows_of_a_run_are_found_again(tiny_run: Any, recurrent: System) -> None:
    rows, side = read_test_examples(recurrent, tiny_run.folder)
    data = read_run_data(recurrent, tiny_run.folder)
    assert side == "test" and rows == data.test and len(data.train) + len(data.dev) + len(data.test) == 200
    with pytest.raises(UserError, match="no such file"):
        read_files(recurrent, [str(tiny_run.folder / "nothing.tsv")])


@pytest.mark.parametrize("beam", [1, 5])
def test_a_search_error_in_the_table_is_one_inside(tiny_run: Any, recurrent: System, beam: int) -> None:
    """Both views rank by what the search ranks by, which may be an average over tokens."""
    rows, side = read_test_examples(recurrent, tiny_run.folder)
    wrong = [row for row in describe_errors(recurrent, rows, side, beam=beam).rows if not row.correct]
    assert wrong
    for row in wrong:
        request = records.PredictRequest(input=row.source, reference=row.references[0], beam=beam)
        shown = describe_prediction(inspect(recurrent, row.source, request), request).reference
        assert shown is not None and row.search_error == (shown.verdict == "search error")


def test_errors_agree_with_the_evaluation(tiny_run: Any, recurrent: System) -> None:
    rows, side = read_test_examples(recurrent, tiny_run.folder)
    errors = describe_errors(recurrent, rows, side, "run")
    report = evaluate(recurrent, rows)
    assert errors.evaluation.scores[0].value == report.value
    assert len(errors.rows) == errors.evaluation.rows and errors.left_out == 0
    assert sum(row.correct for row in errors.rows) / len(errors.rows) * 100 == pytest.approx(
        report.scores["exact"].value
    )
    assert errors.metrics[0].name == report.headline and {"exact", "cer"} <= errors.rows[0].values.keys()
    predicted = [prediction.text for prediction in recurrent.predict([dict(row.sources) for row in rows])]
    assert [row.output for row in errors.rows] == predicted
    lines = {example.sources["source"]: example.line for example in rows}
    assert all(lines[row.source["source"]] == row.line for row in errors.rows)
    assert len(describe_errors(recurrent, rows, side, "run", limit=3).rows) == 3


def test_unknown_words_are_named(recurrent: System) -> None:
    rows = [Example({"source": "abzz ef"}, "x", 1, "f"), Example({"source": "abc"}, "cba", 2, "f")]
    errors = describe_errors(recurrent, rows, "f")
    assert errors.rows[0].unknown == ["abzz"] and errors.rows[1].unknown == []


def test_a_run_compared_with_itself_is_no_better(tiny_run: Any, recurrent: System) -> None:
    rows, _ = read_test_examples(recurrent, tiny_run.folder)
    comparison = compare(recurrent, recurrent, rows, "test")
    assert comparison.wins == comparison.losses == 0 and comparison.ties == comparison.count == len(rows)
    assert comparison.rows == [] and comparison.scores[0].difference == 0 and comparison.scores[0].p_value == 1.0
    assert "no difference" in comparison.scores[0].verdict


def test_a_comparison_counts_rows_in_memory_as_rows(tiny_run: Any, recurrent: System, heads: System) -> None:
    rows, side = read_test_examples(recurrent, tiny_run.folder)
    in_a_file = compare_systems(recurrent, heads, rows, side)
    in_memory = compare_systems(recurrent, heads, [replace(row, unit="row") for row in rows], "the list")
    assert f"  line {in_a_file.rows[0].line}  " in in_a_file.to_text()
    assert f"  row {in_memory.rows[0].line}  " in in_memory.to_text() and "  line " not in in_memory.to_text()
    assert "row" in in_memory.rows[0].to_row()


def test_two_runs_are_compared_row_by_row(tiny_run: Any, recurrent: System, heads: System) -> None:
    rows = read_run_data(recurrent, tiny_run.folder).train[:60]
    comparison = compare(heads, recurrent, rows, "train", ("heads", "recurrent"))
    back = compare(recurrent, heads, rows, "train", ("recurrent", "heads"))
    assert (
        comparison.wins == back.losses
        and comparison.wins + comparison.losses + comparison.ties == comparison.count == 60
    )
    first = comparison.scores[0]
    assert first.difference == pytest.approx(first.b.value - first.a.value) and first.low <= first.difference
    assert back.scores[0].difference == pytest.approx(-first.difference)
    gains = [abs(row.gain) for row in comparison.rows]
    assert gains == sorted(gains, reverse=True) and all(row.a != row.b for row in comparison.rows)
    cer = next(score for score in comparison.scores if score.metric.name == "cer")
    assert ("better" in cer.verdict) == (cer.p_value < 0.05)
    assert len(compare(heads, recurrent, rows, "train", limit=2).rows) == 2


def test_rows_have_a_metric_that_the_report_lacks(recurrent: System) -> None:
    decoded = decode_rows(recurrent, [Example({"source": "abc"}, "cba", 1, "f")])
    report = measure(recurrent, decoded, headline="bleu", names=["exact"])
    assert list(row_statistics(decoded, report, also=("cer", "chrf"))) == ["bleu", "exact", "cer", "chrf"]


def test_missing_files_are_reported(tmp_path: Path, pairs_file: Any, recurrent: System) -> None:
    (tmp_path / "audit.json").write_text('{"rows": {}, "files": {"train": {"files": ["/nowhere/pairs.tsv"]}}}')
    with pytest.raises(UserError, match="no longer exist"):
        read_run_data(recurrent, tmp_path)


@pytest.mark.parametrize("side", ["dev", "test"])
def test_rows_that_were_trained_on_never_count_as_held_out(
    tmp_path: Path, pairs_file: Any, recurrent: System, side: str
) -> None:
    files = {name: {"files": [str(pairs_file(tmp_path / f"{name}.tsv"))]} for name in ("train", side)}
    (tmp_path / "audit.json").write_text(json.dumps({"rows": {}, "files": files}))
    assert len(read_run_data(recurrent, tmp_path).train) > 0
    (tmp_path / f"{side}.tsv").unlink()
    with pytest.raises(UserError, match=f"{side}.tsv"):
        read_run_data(recurrent, tmp_path)


def test_classes_are_measured_as_evaluate_measures_them(label_run: Any, recurrent: System, tiny_run: Any) -> None:
    system = System.load(label_run.folder, "cpu")
    examples = read_files(system, [str(label_run.pairs)])
    found = describe_errors(system, examples, "rows.tsv").evaluation.classes
    wanted = evaluate(system, examples).classes
    assert found is not None and wanted is not None and found.model_dump() == asdict(wanted)
    assert (
        describe_errors(recurrent, read_files(recurrent, [str(tiny_run.pairs)])[:5], "five").evaluation.classes is None
    )
