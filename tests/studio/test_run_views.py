"""A run's folder as records: curves that grow while they are read, the audit, the settings."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import UserError
from dragoman.evaluation.run_data import read_run_data
from dragoman.files import write_json
from dragoman.inference.system import System
from dragoman.studio.views import runs


def line(update: int, loss: float = 1.0) -> str:
    event = {"event": "stepped", "update": update, "epoch": 0, "loss": loss, "learning_rate": 0.1, "gradient_norm": 1.0}
    return json.dumps(event | {"tokens_per_second": 5.0, "seconds": 1.0}) + "\n"


def test_a_run_is_described(tiny_run: Any) -> None:
    run = runs.describe_run(tiny_run.folder, "some")
    assert (run.id, run.name, run.ready, run.is_language_model) == ("some", "run", True, False)
    assert [(source.name, source.kind, source.is_file) for source in run.sources] == [("source", "text", False)]
    assert run.train_files == [str(tiny_run.pairs.resolve())]
    assert run.evaluation is not None and run.evaluation.scores[0].name == run.evaluation.headline
    calibration = run.evaluation.confidence
    assert calibration is not None and sum(each.rows for each in calibration.bins) == calibration.rows
    assert [each.coverage for each in calibration.risks] == [1.0, 0.9, 0.8, 0.5]
    with pytest.raises(UserError, match="not the folder of a run"):
        runs.describe_run(tiny_run.folder.parent, "other")


def test_where_the_rows_of_a_run_are(tiny_run: Any, label_run: Any, tmp_path: Path) -> None:
    assert runs.describe_run(tiny_run.folder, "run").data == "files"
    told = runs.describe_run(label_run.folder, "labels")
    assert (told.data, told.held_out, told.train_files, told.test_files) == ("memory", "", [], [])
    with pytest.raises(UserError, match="trained on a table in memory, of which no rows are kept; give a file"):
        read_run_data(System.load(label_run.folder, "cpu"), label_run.folder)
    moved = tmp_path / "run"
    shutil.copytree(tiny_run.folder, moved)
    audit = json.loads((moved / "audit.json").read_text())
    audit["files"]["train"]["files"] = ["elsewhere.tsv"]
    write_json(moved / "audit.json", audit)
    assert runs.describe_run(moved, "run").data == "missing"


def test_training_is_described_whole_or_from_an_offset(tiny_run: Any) -> None:
    whole = runs.describe_training(tiny_run.folder)
    events = [json.loads(row) for row in (tiny_run.folder / "metrics.jsonl").read_text().splitlines()]
    assert [event.update for event in whole.stepped] == [
        event["update"] for event in events if event["event"] == "stepped"
    ]
    assert [event.loss for event in whole.validated] == [
        event["loss"] for event in events if event["event"] == "validated"
    ]
    assert whole.stopped is not None and whole.stopped.finished and len(whole.started) == 1
    assert whole.offset == (tiny_run.folder / "metrics.jsonl").stat().st_size
    rest = runs.describe_training(tiny_run.folder, after=whole.offset)
    assert not rest.stepped and not rest.restarted and rest.offset == whole.offset


def test_curves_grow_and_start_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert runs.describe_training(tmp_path).offset == 0
    path.write_text(line(1) + line(2) + line(3)[:20])
    first = runs.describe_training(tmp_path)
    assert [event.update for event in first.stepped] == [1, 2]
    path.write_text(line(1) + line(2) + line(3) + line(4, float("nan")))
    second = runs.describe_training(tmp_path, after=first.offset)
    assert [(event.update, event.loss) for event in second.stepped] == [(3, 1.0), (4, None)]
    assert not second.restarted
    path.write_text(line(1))
    third = runs.describe_training(tmp_path, after=second.offset)
    assert third.restarted and [event.update for event in third.stepped] == [1]
    json.loads(second.model_dump_json())


def test_a_damaged_line_costs_only_itself(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(line(1) + "{oh no\n" + line(3))
    assert [event.update for event in runs.describe_training(tmp_path).stepped] == [1, 3]


def test_audit_and_settings(tiny_run: Any) -> None:
    audit = runs.describe_audit(tiny_run.folder)
    assert audit.train + audit.dev + audit.test == 200 and "held out" in audit.held_out
    assert [side.side for side in audit.files[0].statistics] == ["source", "target"]
    settings = {setting.path: json.loads(setting.value) for setting in runs.describe_settings(tiny_run.folder).settings}
    assert settings["decoder.width"] == tiny_run.settings["decoder"]["width"]
