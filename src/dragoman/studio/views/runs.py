"""What a run's folder says without the weights: its curves, data, scores and settings."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from dragoman.evaluation.metrics import Report
from dragoman.evaluation.run_data import find_data_files, is_from_memory
from dragoman.files import read_json
from dragoman.parts import kind_of, part
from dragoman.runs.history import AUDIT, read_audit, read_evaluation, read_metrics
from dragoman.runs.setup import Setup
from dragoman.search.options import SearchConfig
from dragoman.studio import records

WEIGHTS = "model.safetensors"


def describe_run(folder: Path, identity: str, parameters: int | None = None, name: str = "") -> records.Run:
    """Describe a run.

    ``identity`` is its id on the page; ``parameters`` is their number, if the model is loaded. Without a ``name`` it is
    called as its folder is.
    """
    config = folder / "config.json"
    setup = _read_setup(folder, config.stat().st_mtime_ns if config.exists() else 0)
    recipe = setup.recipe
    files = find_data_files(folder)
    data = _locate_data(folder, files)
    return records.Run(
        id=identity,
        name=name or folder.resolve().name,
        folder=str(folder),
        preset=recipe.preset,
        is_language_model=recipe.is_language_model,
        is_classifier=bool(setup.classes),
        sources=[
            records.Source(
                name=name,
                kind=kind_of(source.modality),
                is_file=part("modality", kind_of(source.modality)).is_file,
                encoder=kind_of(source.encoder),
            )
            for name, source in recipe.sources.items()
        ],
        decoder=kind_of(recipe.decoder),
        target_tokens=setup.target.kind,
        vocabulary=setup.target.size,
        parameters=parameters,
        metric=recipe.metric,
        search=describe_search(recipe.search, setup.classes),
        ready=(folder / WEIGHTS).exists(),
        evaluation=_read_evaluation(folder),
        held_out=_name_held_out(folder) if data == "files" else "",
        data=data,
        train_files=files.get("train", []),
        test_files=[*files.get("test", []), *files.get("dev", [])],
    )


def describe_search(config: SearchConfig, classes: Sequence[str] = ()) -> records.Search:
    """Describe the settings of a search. A classifier, which has ``classes``, ranks them by their probability."""
    normalize = "none" if classes else config.normalize
    return records.Search(beam=config.beam, n_best=config.n_best, normalize=normalize, alpha=config.alpha)


def describe_training(folder: Path, run: str = "", after: int = 0) -> records.Training:
    """Describe the events in metrics.jsonl after its first ``after`` bytes."""
    tail = read_metrics(folder, after)
    events: dict[str, list[dict[str, Any]]] = {"started": [], "stepped": [], "validated": [], "stopped": []}
    last_kind = ""
    for event in tail.events:
        kind = event.get("event", "")
        last_kind = kind if kind != "saved" else last_kind
        if kind in events:
            events[kind].append(event)
    has_stopped = last_kind == "stopped"
    return records.Training(
        run=run,
        offset=tail.offset,
        restarted=tail.restarted,
        started=[records.Started(**_select_fields(records.Started, event)) for event in events["started"]],
        stepped=[
            records.Stepped(**{"gold_share": 1.0} | _select_fields(records.Stepped, event))
            for event in events["stepped"]
        ],
        validated=[records.Validated(**_select_fields(records.Validated, event)) for event in events["validated"]],
        stopped=records.Stopped(**_select_fields(records.Stopped, events["stopped"][-1])) if has_stopped else None,
    )


def describe_audit(folder: Path, run: str = "") -> records.Audit:
    """Describe what the audit found in the files that the run was trained on."""
    audit = read_audit(folder)
    rows = audit["rows"]
    return records.Audit(
        run=run,
        train=rows["train"],
        dev=rows["dev"],
        test=rows["test"],
        held_out=audit.get("held_out", ""),
        files=[_describe_file_audit(name, file) for name, file in audit["files"].items()],
        overlap=[
            records.SharedRows(part=name, rows=shared["rows"], total=shared["total"], pairs=shared["pairs"])
            for name, shared in audit.get("overlap", {}).items()
        ],
    )


def describe_settings(folder: Path, run: str = "") -> records.Settings:
    """Describe every setting of the run's recipe by its path."""
    recipe = read_json(folder / "config.json")["recipe"]
    settings = [
        records.Setting(path=path, value=json.dumps(value, ensure_ascii=False)) for path, value in _flatten(recipe)
    ]
    return records.Settings(run=run, settings=settings)


def describe_evaluation(report: Mapping[str, Any] | Report, side: str) -> records.Evaluation:
    """Describe a report, or what was saved of one. ``side`` names the rows that were measured."""
    plain = report.to_json() if isinstance(report, Report) else report
    return records.Evaluation(
        side=side,
        rows=plain["rows"],
        references=plain["references"],
        headline=plain["headline"],
        scores=[records.Score(**score) for score in plain["scores"].values()],
        by_length=[records.LengthScore(**score) for score in plain["by_length"]],
        length_unit=plain["length_unit"],
        confusion=records.Confusion(**plain["confusion"]) if plain.get("confusion") else None,
        classes=_describe_classes(plain["classes"]) if plain.get("classes") else None,
        confidence=_describe_calibration(plain["confidence"]) if plain.get("confidence") else None,
    )


def _describe_classes(plain: Mapping[str, Any]) -> records.Classes:
    return records.Classes(**{**plain, "classes": [records.ClassScore(**each) for each in plain["classes"]]})


def _describe_calibration(plain: Mapping[str, Any]) -> records.Calibration:
    lists: dict[str, Any] = {
        "bins": [records.ReliabilityBin(**each) for each in plain["bins"]],
        "risks": [records.CoverageRisk(**each) for each in plain["risks"]],
        "curve": [records.CoverageRisk(**each) for each in plain["curve"]],
    }
    return records.Calibration(**{**plain, **lists})


@lru_cache(maxsize=32)
def _read_setup(folder: Path, modified: int) -> Setup:
    """Read config and tokenizers, once for each ``modified`` time.

    Tokenizers may be large, and the page asks often.
    """
    return Setup.read(folder)


def _locate_data(folder: Path, files: Mapping[str, list[str]]) -> Literal["files", "memory", "missing", ""]:
    """Say where the rows of a run are. ``files`` are those of its data that still exist."""
    if not (folder / AUDIT).exists():
        return ""
    if is_from_memory(folder):
        return "memory"
    return "files" if "train" in files and files.keys() == read_audit(folder)["files"].keys() else "missing"


def _name_held_out(folder: Path) -> Literal["test", "dev"]:
    """Name the rows that a run is measured on."""
    return "test" if read_audit(folder)["rows"]["test"] else "dev"


def _read_evaluation(folder: Path) -> records.Evaluation | None:
    saved = read_evaluation(folder)
    return None if saved is None else describe_evaluation(saved, saved["side"])


def _describe_file_audit(part: str, audit: Mapping[str, Any]) -> records.FileAudit:
    return records.FileAudit(
        part=part,
        files=audit["files"],
        format=audit["format"],
        summary=audit["summary"],
        rows=audit["rows"],
        used=audit["used"],
        dropped=audit["dropped"],
        distinct_sources=audit["distinct_sources"],
        sources_with_several_targets=audit["sources_with_several_targets"],
        notes=audit["notes"],
        findings=[
            records.Finding(
                category=category,
                title=finding["title"],
                fate=finding["fate"],
                count=finding["count"],
                places=[
                    records.Place(file=place["file"], line=place["line"], reason=place["reason"])
                    for place in finding["places"]
                ],
            )
            for category, finding in audit["findings"].items()
        ],
        statistics=[
            records.SideStatistics(
                side=side,
                characters=records.Lengths(**_select_fields(records.Lengths, statistics["characters"])),
                words=records.Lengths(**_select_fields(records.Lengths, statistics["words"])),
                **_select_fields(records.SideStatistics, statistics, without=("side", "characters", "words")),
            )
            for side, statistics in audit["statistics"].items()
        ],
    )


def _select_fields(
    record: type[records.Record], values: Mapping[str, Any], without: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the values that the record has a field for.

    Infinities and NaN, which JSON cannot express, become None.
    """
    names = [name for name in record.model_fields if name in values and name not in without]
    return {name: _replace_non_finite(values[name]) for name in names}


def _replace_non_finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _replace_non_finite(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _flatten(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """Return nested settings as pairs of a dotted path and a value."""
    if isinstance(value, dict) and value:
        return [pair for key, inner in value.items() for pair in _flatten(inner, f"{path}.{key}" if path else key)]
    return [(path, value)]
