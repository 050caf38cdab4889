"""What the folder of a run tells without its weights: what it is, how training went, what the data were."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from dragoman.errors import UserError
from dragoman.metrics import Report
from dragoman.parts import kind_of, part
from dragoman.run_setup import Setup
from dragoman.studio import records

WEIGHTS = "model.safetensors"


def run(folder: Path, identity: str, parameters: int | None = None) -> records.Run:
    """``identity``: what the page calls the run by."""
    config = folder / "config.json"
    setup = _setup(folder, config.stat().st_mtime_ns if config.exists() else 0)
    recipe = setup.recipe
    files = data_files(folder)
    return records.Run(
        id=identity,
        name=folder.resolve().name,
        folder=str(folder),
        preset=recipe.preset,
        is_language_model=recipe.is_language_model,
        sources=[
            records.Source(
                name=name,
                kind=kind_of(one.modality),
                is_file=part("modality", kind_of(one.modality)).is_file,
                encoder=kind_of(one.encoder),
            )
            for name, one in recipe.sources.items()
        ],
        decoder=kind_of(recipe.decoder),
        target_tokens=setup.target.kind,
        vocabulary=setup.target.size,
        parameters=parameters,
        metric=recipe.metric,
        search=records.Search(
            beam=recipe.search.beam,
            n_best=recipe.search.n_best,
            normalize=recipe.search.normalize,
            alpha=recipe.search.alpha,
        ),
        ready=(folder / WEIGHTS).exists(),
        evaluation=_evaluation(folder),
        train_files=files.get("train", []),
        test_files=files.get("test", []) or files.get("dev", []),
    )


def training(folder: Path, run: str = "", after: int = 0) -> records.Training:
    """Whole lines of metrics.jsonl behind ``after`` bytes; a line that is still being written waits for the next call.

    A run that starts anew or goes back to a checkpoint makes the file shorter. Then all of it is told again.
    """
    path = folder / "metrics.jsonl"
    data = path.read_bytes() if path.exists() else b""
    restarted = after > len(data) or (after > 0 and data[after - 1 : after] != b"\n")
    begin = 0 if restarted else after
    fresh = data[begin : data.rfind(b"\n") + 1]
    events: dict[str, list[dict[str, Any]]] = {"started": [], "stepped": [], "validated": [], "stopped": []}
    last = ""
    for line in fresh.splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue  # a disk that was full, a machine that fell over: the other lines still tell
        last = event.get("event", "") if event.get("event") != "saved" else last
        if event.get("event") in events:
            events[event["event"]].append(event)
    ended = last == "stopped"
    return records.Training(
        run=run,
        offset=begin + len(fresh),
        restarted=restarted,
        started=[records.Started(**_only(records.Started, one)) for one in events["started"]],
        stepped=[records.Stepped(**{"gold_share": 1.0} | _only(records.Stepped, one)) for one in events["stepped"]],
        validated=[records.Validated(**_only(records.Validated, one)) for one in events["validated"]],
        stopped=records.Stopped(**_only(records.Stopped, events["stopped"][-1])) if ended else None,
    )


def audit(folder: Path, run: str = "") -> records.Audit:
    found = _json(folder / "audit.json")
    rows = found["rows"]
    return records.Audit(
        run=run,
        train=rows["train"],
        dev=rows["dev"],
        test=rows["test"],
        held_out=found.get("held_out", ""),
        files=[_file_audit(name, one) for name, one in found["files"].items()],
        overlap=[
            records.SharedRows(part=name, rows=one["rows"], total=one["total"], pairs=one["pairs"])
            for name, one in found.get("overlap", {}).items()
        ],
    )


def settings(folder: Path, run: str = "") -> records.Settings:
    recipe = _json(folder / "config.json")["recipe"]
    flat = [records.Setting(path=path, value=json.dumps(value, ensure_ascii=False)) for path, value in _flat(recipe)]
    return records.Settings(run=run, settings=flat)


def evaluation(report: Mapping[str, Any] | Report, side: str) -> records.Evaluation:
    plain = report.to_json() if isinstance(report, Report) else report
    return records.Evaluation(
        side=side,
        rows=plain["rows"],
        references=plain["references"],
        headline=plain["headline"],
        scores=[records.Score(**one) for one in plain["scores"].values()],
        by_length=[records.LengthScore(**one) for one in plain["by_length"]],
        length_unit=plain["length_unit"],
        confusion=records.Confusion(**plain["confusion"]) if plain.get("confusion") else None,
    )


@lru_cache(maxsize=32)
def _setup(folder: Path, written: int) -> Setup:
    """Read once while the folder's config stays the same: tokenisers may be large, and pages ask often."""
    return Setup.read(folder)


def _evaluation(folder: Path) -> records.Evaluation | None:
    if not (folder / "evaluation.json").exists():
        return None
    found = _json(folder / "evaluation.json")
    return evaluation(found, found["side"])


def data_files(folder: Path) -> dict[str, list[str]]:
    """The data files that audit.json names and that still exist, as absolute paths, by part."""
    if not (folder / "audit.json").exists():
        return {}
    audits = _json(folder / "audit.json")["files"]
    there = {
        name: [path for path in one["files"] if path != "-" and Path(path).exists()] for name, one in audits.items()
    }
    return {
        name: [str(Path(path).resolve()) for path in paths]
        for name, paths in there.items()
        if len(paths) == len(audits[name]["files"])
    }


def missing_files(folder: Path) -> list[str]:
    """Those that audit.json names and that are not there, as they are written there."""
    if not (folder / "audit.json").exists():
        return []
    named = [path for one in _json(folder / "audit.json")["files"].values() for path in one["files"]]
    return [path for path in named if path == "-" or not Path(path).exists()]


def _file_audit(part: str, one: Mapping[str, Any]) -> records.FileAudit:
    return records.FileAudit(
        part=part,
        files=one["files"],
        format=one["format"],
        summary=one["summary"],
        rows=one["rows"],
        used=one["used"],
        dropped=one["dropped"],
        distinct_sources=one["distinct_sources"],
        sources_with_several_targets=one["sources_with_several_targets"],
        notes=one["notes"],
        findings=[
            records.Finding(
                category=name,
                title=found["title"],
                fate=found["fate"],
                count=found["count"],
                places=[
                    records.Place(file=place["file"], line=place["line"], reason=place["reason"])
                    for place in found["places"]
                ],
            )
            for name, found in one["findings"].items()
        ],
        statistics=[
            records.SideStatistics(
                side=side,
                characters=records.Lengths(**_only(records.Lengths, found["characters"])),
                words=records.Lengths(**_only(records.Lengths, found["words"])),
                **_only(records.SideStatistics, found, but=("side", "characters", "words")),
            )
            for side, found in one["statistics"].items()
        ],
    )


def _only(record: type[records.Record], event: Mapping[str, Any], but: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields of the record; numbers that are none (a run that diverged) as None, since JSON has no such numbers."""
    names = [name for name in record.model_fields if name in event and name not in but]
    return {name: _finite(event[name]) for name in names}


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _flat(value: Any, path: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        return [one for key, inner in value.items() for one in _flat(inner, f"{path}.{key}" if path else key)]
    return [(path, value)]


def _json(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; is {path.parent} the folder of a run?") from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); train again, or restore the file") from None
    return found
