"""Every record has a TypeScript type, and the file of the types is up to date."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dragoman.studio import records
from dragoman.studio.schema import write_interface, write_typescript

WRITTEN = Path(__file__).parents[2] / "studio" / "src" / "records.ts"


def test_the_types_of_the_page_are_those_of_the_records() -> None:
    if not WRITTEN.parent.parent.exists():
        pytest.skip("the page's source is not here")
    remedy = "python -m dragoman.studio.schema > studio/src/records.ts"
    assert WRITTEN.read_text(encoding="utf-8") == write_typescript(), f"out of date; run: {remedy}"


def test_how_types_are_written() -> None:
    class Sample(records.Record):
        """What it is."""

        name: str
        """Of it."""
        sizes: list[int | None]
        place: tuple[float, float] | None
        inner: dict[str, list[records.Span]]
        beam: int | None = None

    assert write_interface(Sample).splitlines()[1:-1] == [
        "export interface Sample {",
        "  name: string; // Of it.",
        "  sizes: (number | null)[];",
        "  place: [number, number] | null;",
        "  inner: Record<string, Span[]>;",
        "  beam?: number | null;",
    ]

    class Untyped(records.Record):
        anything: Any

    with pytest.raises(TypeError, match="no TypeScript"):
        write_interface(Untyped)


def test_a_record_refuses_what_it_does_not_know() -> None:
    with pytest.raises(ValidationError):
        records.PredictRequest.model_validate({"input": "a", "beem": 3})
