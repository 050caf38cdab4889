"""Errors and comparison."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dragoman import workflow
from dragoman.data.examples import Example
from dragoman.errors import UserError
from dragoman.studio.rows import measured_rows, own_rows, read_file
from dragoman.studio.tables import compare, compared, errors
from dragoman.system import System


@pytest.mark.parametrize(
    ("output", "reference"),
    [("abcd", "abxd"), ("the cat sat", "the dog sat down"), ("", "x"), ("x", ""), ("", ""), ("a\u00a0b 😀", "a b 😀")],
)
def test_spans_put_together_give_both_texts(output: str, reference: str) -> None:
    spans = compared(output, reference)
    assert "".join(span.output for span in spans) == output
    assert "".join(span.reference for span in spans) == reference
    assert all((span.output == span.reference) == span.same for span in spans)


def test_words_are_compared_whole() -> None:
    different = [(span.output, span.reference) for span in compared("the cat sat", "the bat sat") if not span.same]
    assert different == [("cat", "bat")]


def test_the_rows_of_a_run_are_found_again(tiny_run: Any, recurrent: System) -> None:
    rows, side = measured_rows(recurrent, tiny_run.folder)
    data = own_rows(recurrent, tiny_run.folder)
    assert side == "test" and rows == data.test and len(data.train) + len(data.dev) + len(data.test) == 200
    with pytest.raises(UserError, match="no such file"):
        read_file(recurrent, [str(tiny_run.folder / "nothing.tsv")])


def test_errors_agree_with_the_evaluation(tiny_run: Any, recurrent: System) -> None:
    rows, side = measured_rows(recurrent, tiny_run.folder)
    found = errors(recurrent, rows, side, "run")
    report = workflow.evaluate(recurrent, rows)
    assert found.evaluation.scores[0].value == report.value
    assert len(found.rows) == found.evaluation.rows and found.left_out == 0
    assert sum(row.correct for row in found.rows) / len(found.rows) * 100 == pytest.approx(report.scores["exact"].value)
    assert found.metrics[0].name == report.headline and {"exact", "cer"} <= found.rows[0].values.keys()
    predicted = [one.text for one in recurrent.predict([dict(one.sources) for one in rows])]
    assert [row.output for row in found.rows] == predicted
    lines = {example.sources["source"]: example.line for example in rows}
    assert all(lines[row.source["source"]] == row.line for row in found.rows)
    assert len(errors(recurrent, rows, side, "run", limit=3).rows) == 3


def test_unknown_words_are_named(recurrent: System) -> None:
    rows = [Example({"source": "abzz ef"}, "x", 1, "f"), Example({"source": "abc"}, "cba", 2, "f")]
    found = errors(recurrent, rows, "f")
    assert found.rows[0].unknown == ["abzz"] and found.rows[1].unknown == []


def test_a_run_compared_with_itself_is_no_better(tiny_run: Any, recurrent: System) -> None:
    rows, _ = measured_rows(recurrent, tiny_run.folder)
    found = compare(recurrent, recurrent, rows, "test")
    assert found.wins == found.losses == 0 and found.ties == found.count == len(rows)
    assert found.rows == [] and found.scores[0].difference == 0 and found.scores[0].p_value == 1.0
    assert "no difference" in found.scores[0].verdict


def test_two_runs_are_compared_row_by_row(tiny_run: Any, recurrent: System, heads: System) -> None:
    rows = own_rows(recurrent, tiny_run.folder).train[:60]
    found = compare(heads, recurrent, rows, "train", ("heads", "recurrent"))
    back = compare(recurrent, heads, rows, "train", ("recurrent", "heads"))
    assert found.wins == back.losses and found.wins + found.losses + found.ties == found.count == 60
    first = found.scores[0]
    assert first.difference == pytest.approx(first.b.value - first.a.value) and first.low <= first.difference
    assert back.scores[0].difference == pytest.approx(-first.difference)
    gains = [abs(row.gain) for row in found.rows]
    assert gains == sorted(gains, reverse=True) and all(row.a != row.b for row in found.rows)
    cer = next(score for score in found.scores if score.metric.name == "cer")
    assert ("better" in cer.verdict) == (cer.p_value < 0.05)
    assert len(compare(heads, recurrent, rows, "train", limit=2).rows) == 2


def test_files_that_are_gone_are_told(tmp_path: Path, pairs_file: Any, recurrent: System) -> None:
    (tmp_path / "audit.json").write_text('{"rows": {}, "files": {"train": {"files": ["/nowhere/pairs.tsv"]}}}')
    with pytest.raises(UserError, match="not there any more"):
        own_rows(recurrent, tmp_path)


@pytest.mark.parametrize("side", ["dev", "test"])
def test_rows_that_were_trained_on_are_never_told_as_held_out(
    tmp_path: Path, pairs_file: Any, recurrent: System, side: str
) -> None:
    files = {name: {"files": [str(pairs_file(tmp_path / f"{name}.tsv"))]} for name in ("train", side)}
    (tmp_path / "audit.json").write_text(json.dumps({"rows": {}, "files": files}))
    assert len(own_rows(recurrent, tmp_path).train) > 0
    (tmp_path / f"{side}.tsv").unlink()
    with pytest.raises(UserError, match=f"{side}.tsv"):
        own_rows(recurrent, tmp_path)
