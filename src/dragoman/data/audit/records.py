"""Audits of several files as one, and an audit read back from its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dragoman.data.audit.audit import Audit, Finding, Place
from dragoman.data.audit.text_statistics import TextStatistics


def merge_audits(audits: Sequence[Audit], notes: Sequence[str]) -> Audit:
    """Return one audit of files that were read one after the other. ``notes``: those on the files."""
    if len(audits) == 1:
        return audits[0]
    merged = Audit(tuple(file for audit in audits for file in audit.files), audits[0].format, list(notes))
    merged.unit = audits[0].unit
    for audit in audits:
        merged.rows += audit.rows
        merged.dropped_rows |= audit.dropped_rows
        for category, finding in audit.findings.items():
            merged.record_many(category, finding.count, finding.places)
    return merged


def read_audit(record: Mapping[str, Any]) -> Audit:
    """Make an audit of texts from what ``Audit.to_json`` returned."""
    audit = Audit(tuple(record["files"]), record["format"], list(record["notes"]), record["unit"], record["rows"])
    audit.findings = {
        category: Finding(finding["count"], [Place(**place) for place in finding["places"]])
        for category, finding in record["findings"].items()
    }
    audit.sources, audit.several = record["distinct_sources"], record["sources_with_several_targets"]
    audit.statistics = {side: TextStatistics.from_json(each) for side, each in record["statistics"].items()}
    audit.dropped_before = record["dropped"]
    return audit
