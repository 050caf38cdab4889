"""Boosting: an ensemble of seeds and one folded model, with the figures of all three; the result is an ordinary run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dragoman
from dragoman.errors import UserError
from dragoman.files import read_json
from dragoman.runs.folder import ENSEMBLE_FOLDER
from dragoman.training.boosting import DISTILLED, FIGURES


def test_an_ensemble_is_folded_into_one_run(tiny_run: Any, tiny_settings: dict[str, Any], tmp_path: Path) -> None:
    training = {**tiny_settings["training"], "max_updates": 60, "native": False}
    settings = {**tiny_settings, "training": training}
    out = tmp_path / "run"
    boosted = dragoman.boost(tiny_run.pairs, out=out, seeds=2, settings=settings)
    assert len(boosted.singles) == 2 and read_json(out / FIGURES) == boosted.to_json()
    for words in ("mean of 2", "ensemble", "folded"):
        assert words in boosted.to_text()
    members = dragoman.load([out / ENSEMBLE_FOLDER / f"seed-{seed}" for seed in (1, 2)])
    lines = (out / ENSEMBLE_FOLDER / DISTILLED).read_text(encoding="utf-8").splitlines()[1:]
    assert len(lines) > 20
    for line in lines[:3]:
        source, output = line.split("\t")
        assert members(source) == output, "the rows are what the ensemble says"
    folded = dragoman.load(out)
    assert folded.model.parameters_count == dragoman.load(out / ENSEMBLE_FOLDER / "seed-1").model.parameters_count
    before = (out / "model.safetensors").read_bytes()
    again = dragoman.boost(tiny_run.pairs, out=out, seeds=2, settings=settings)
    assert again.to_json() == boosted.to_json() and (out / "model.safetensors").read_bytes() == before


def test_a_run_that_is_there_is_left_alone(tiny_run: Any) -> None:
    with pytest.raises(UserError, match="without an ensemble"):
        dragoman.boost(tiny_run.pairs, out=tiny_run.folder, seeds=2)
