"""What a run's folder tells: curves that grow while they are read, the audit, the settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dragoman.errors import UserError
from dragoman.studio import history


def line(update: int, loss: float = 1.0) -> str:
    told = {"event": "stepped", "update": update, "epoch": 0, "loss": loss, "learning_rate": 0.1, "gradient_norm": 1.0}
    return json.dumps(told | {"tokens_per_second": 5.0, "seconds": 1.0}) + "\n"


def test_a_run_is_told(tiny_run: Any) -> None:
    run = history.run(tiny_run.folder, "one")
    assert (run.id, run.name, run.ready, run.is_language_model) == ("one", "run", True, False)
    assert [(one.name, one.kind, one.is_file) for one in run.sources] == [("source", "text", False)]
    assert run.train_files == [str(tiny_run.pairs.resolve())]
    assert run.evaluation is not None and run.evaluation.scores[0].name == run.evaluation.headline
    with pytest.raises(UserError, match="not the folder of a run"):
        history.run(tiny_run.folder.parent, "other")


def test_training_is_told_whole_or_from_an_offset(tiny_run: Any) -> None:
    whole = history.training(tiny_run.folder)
    events = [json.loads(one) for one in (tiny_run.folder / "metrics.jsonl").read_text().splitlines()]
    assert [one.update for one in whole.stepped] == [one["update"] for one in events if one["event"] == "stepped"]
    assert [one.loss for one in whole.validated] == [one["loss"] for one in events if one["event"] == "validated"]
    assert whole.stopped is not None and whole.stopped.finished and len(whole.started) == 1
    assert whole.offset == (tiny_run.folder / "metrics.jsonl").stat().st_size
    rest = history.training(tiny_run.folder, after=whole.offset)
    assert not rest.stepped and not rest.restarted and rest.offset == whole.offset


def test_curves_grow_and_start_anew(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert history.training(tmp_path).offset == 0
    path.write_text(line(1) + line(2) + line(3)[:20])
    first = history.training(tmp_path)
    assert [one.update for one in first.stepped] == [1, 2]
    path.write_text(line(1) + line(2) + line(3) + line(4, float("nan")))
    second = history.training(tmp_path, after=first.offset)
    assert [(one.update, one.loss) for one in second.stepped] == [(3, 1.0), (4, None)]
    assert not second.restarted
    path.write_text(line(1))
    third = history.training(tmp_path, after=second.offset)
    assert third.restarted and [one.update for one in third.stepped] == [1]
    json.loads(second.model_dump_json())


def test_a_damaged_line_costs_only_itself(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(line(1) + "{oh no\n" + line(3))
    assert [one.update for one in history.training(tmp_path).stepped] == [1, 3]


def test_audit_and_settings(tiny_run: Any) -> None:
    audit = history.audit(tiny_run.folder)
    assert audit.train + audit.dev + audit.test == 200 and "held out" in audit.held_out
    assert [one.side for one in audit.files[0].statistics] == ["source", "target"]
    settings = {one.path: json.loads(one.value) for one in history.settings(tiny_run.folder).settings}
    assert settings["decoder.width"] == tiny_run.settings["decoder"]["width"]
