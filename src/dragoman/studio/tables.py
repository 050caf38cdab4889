"""A test set's outputs against their references, row by row, of one run or of two side by side."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

import numpy as np

from dragoman import metrics
from dragoman.data.examples import Example, identity
from dragoman.data.vocabulary import SPECIALS
from dragoman.errors import UserError
from dragoman.metrics import METRICS, Counts
from dragoman.modalities.text import Text
from dragoman.predictions import texts_of
from dragoman.studio import records
from dragoman.studio.history import evaluation
from dragoman.studio.views import unknown_words
from dragoman.system import System
from dragoman.workflow import Decoded, decode, measure, source_length

RARE = 5  # a token seen fewer times than this in training is rare
BY_CHARACTER = 400  # characters up to which texts are compared character by character
SURE = 0.05  # a p-value below this is told as a difference


def errors(
    system: System, examples: Sequence[Example], file: str, run: str = "", beam: int | None = None, limit: int = 2000
) -> records.Errors:
    """Every distinct source once, with all its references."""
    began = time.perf_counter()
    decoded = _decoded(system, examples, beam)
    report = measure(system, decoded)
    names, tables = _tables(system, decoded, report)
    lines = first_lines(examples)
    rows = [_row(system, decoded, lines, index, tables) for index in range(min(limit, len(decoded.sources)))]
    return records.Errors(
        run=run,
        file=file,
        metrics=[_name(name, report) for name in names],
        evaluation=evaluation(report, file),
        rare_below=RARE,
        rows=rows,
        left_out=len(decoded.sources) - len(rows),
        seconds=time.perf_counter() - began,
    )


def compare(
    first: System, second: System, examples: Sequence[Example], file: str, names: tuple[str, str] = ("a", "b"),
    ids: tuple[str, str] = ("", ""), beam: int | None = None, limit: int = 500,
) -> records.Comparison:  # fmt: skip
    """Both runs on the same rows; ``difference`` and ``gain`` are of the second over the first."""
    if first.modalities.keys() != second.modalities.keys():
        raise UserError(
            f"{names[0]} reads {', '.join(first.modalities) or 'no source'}, {names[1]} "
            f"{', '.join(second.modalities) or 'no source'}; runs are compared on the same file"
        )
    decoded = [_decoded(system, examples, beam) for system in (first, second)]
    reports = [measure(first, decoded[0])]
    reports.append(measure(second, decoded[1], headline=reports[0].headline, names=list(reports[0].scores)))
    tables = [_tables(first, one, reports[0])[1] for one in decoded]
    scores = []
    for name, score in reports[0].scores.items():
        if name in tables[0]:
            found = metrics.compare(tables[0][name], tables[1][name])
            other = reports[1].scores[name]
            scores.append(
                records.ComparedScore(
                    metric=_name(name, reports[0]),
                    a=records.Score(**_plain(score)),
                    b=records.Score(**_plain(other)),
                    difference=found.difference,
                    low=found.low,
                    high=found.high,
                    p_value=found.p_value,
                    verdict=_verdict(score.label, score.better, found, names),
                )
            )
    by = "chrf" if reports[0].headline == "bleu" else reports[0].headline
    values = [_each(table[by]) for table in tables]
    gains = (values[1] - values[0]) * (1 if METRICS[by].better == "higher" else -1)
    edits = [_each(table["cer"]) for table in tables]
    texts = [texts_of(one.predictions) for one in decoded]
    differ = [row for row in range(len(gains)) if texts[0][row] != texts[1][row]]
    differ.sort(key=lambda row: (-abs(gains[row]), -abs(edits[0][row] - edits[1][row]), row))
    lines = first_lines(examples)
    rows = []
    for row in differ[:limit]:
        options = decoded[0].references[row]
        spans = [compared(text[row], nearest(text[row], options)) for text in texts]
        rows.append(
            records.ComparedRow(
                index=row,
                line=lines[row],
                source=decoded[0].sources[row],
                references=options,
                a=texts[0][row],
                b=texts[1][row],
                a_value=float(values[0][row]),
                b_value=float(values[1][row]),
                gain=float(gains[row]),
                a_spans=spans[0],
                b_spans=spans[1],
            )
        )
    wins, losses = int((gains > 1e-9).sum()), int((gains < -1e-9).sum())
    return records.Comparison(
        a=ids[0], b=ids[1], a_name=names[0], b_name=names[1], file=file, count=len(gains), scores=scores,
        row_metric=_name(by, reports[0]), wins=wins, losses=losses, ties=len(gains) - wins - losses, rows=rows,
        left_out=len(differ) - len(rows),
    )  # fmt: skip


def compared(output: str, reference: str) -> list[records.Span]:
    """Where the two agree and where not: by characters where they are short, by words where they are long."""
    fine = max(len(output), len(reference)) <= BY_CHARACTER and " " not in output + reference
    ours, theirs = ([*text] if fine else re.findall(r"\s+|[^\s]+", text) for text in (output, reference))
    matcher = SequenceMatcher(None, ours, theirs, autojunk=False)
    return [
        records.Span(same=kind == "equal", output="".join(ours[a:b]), reference="".join(theirs[c:d]))
        for kind, a, b, c, d in matcher.get_opcodes()
    ]


def nearest(output: str, references: Sequence[str]) -> str:
    from rapidfuzz.distance import Levenshtein

    return min(references, key=lambda reference: Levenshtein.distance(output, reference))


def _decoded(system: System, examples: Sequence[Example], beam: int | None) -> Decoded:
    if system.is_language_model:
        raise UserError("a language model has no outputs to lay beside references; dragoman evaluate measures it")
    if not examples:
        raise UserError("the file has no usable row; dragoman check says why")
    return decode(system, examples, beam=beam)


def _tables(system: System, decoded: Decoded, report: metrics.Report) -> tuple[list[str], dict[str, Counts]]:
    """The statistics of every metric that a row alone has a value of; the character error rate always."""
    texts = texts_of(decoded.predictions)
    names = list(dict.fromkeys([report.headline, *report.scores, "cer"]))
    found = {name: metrics.counts(name, texts, decoded.references) for name in names if "perplexity" not in name}
    if report.headline == "perplexity":
        found = {"perplexity": _perplexity(decoded), **found}
    return list(found), found


def _perplexity(decoded: Decoded) -> Counts:
    from dragoman.metrics.counting import perplexity

    return perplexity([one.log_prob for one in decoded.scored], [len(one.tokens) for one in decoded.scored])


def _each(table: Counts) -> np.ndarray:
    """The metric of every row alone."""
    return np.asarray(table.score(table.rows), dtype=float)


def _row(
    system: System, decoded: Decoded, lines: Sequence[int], index: int, tables: dict[str, Counts]
) -> records.ErrorRow:
    prediction, scored, options = decoded.predictions[index], decoded.scored[index], decoded.references[index]
    source = decoded.sources[index]
    texts = {name: one for name, one in system.modalities.items() if isinstance(one, Text)}
    return records.ErrorRow(
        index=index,
        line=lines[index],
        source=source,
        references=options,
        output=prediction.text,
        correct=prediction.text in options,
        values={
            name: float(_each(Counts(table.rows[index : index + 1], table.score))[0]) for name, table in tables.items()
        },
        log_prob=prediction.outputs[0].log_prob,
        reference_log_prob=scored.log_prob if np.isfinite(scored.log_prob) else None,
        source_length=source_length(system, source),
        output_length=len(prediction.tokens),
        reference_length=len(scored.tokens),
        unknown=[word for name, one in texts.items() for word in unknown_words(one, source[name])],
        rare=[token for name, one in texts.items() for token in _rare(one, source[name])],
        spans=compared(prediction.text, nearest(prediction.text, options)),
    )


def _rare(modality: Text, text: str) -> list[str]:
    counts = modality.tokenizer.counts
    if not any(counts[len(SPECIALS) :]):
        return []  # never counted
    ids = [token for token in modality.tokenizer.encode(text) if token >= len(SPECIALS) and counts[token] < RARE]
    return list(dict.fromkeys(modality.tokenizer.pieces(ids)))


def first_lines(examples: Sequence[Example]) -> list[int]:
    """Of each distinct source, in first-seen order: where it first stands."""
    found: dict[Any, int] = {}
    for example in examples:
        found.setdefault(identity(example), example.line)
    return list(found.values())


def _name(name: str, report: metrics.Report) -> records.MetricName:
    metric = METRICS[name]
    label = report.scores[name].label if name in report.scores else metric.label
    return records.MetricName(name=name, label=label, better=metric.better, unit=metric.unit)


def _plain(score: metrics.Score) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(score)


def _verdict(label: str, better: str, found: metrics.Comparison, names: tuple[str, str]) -> str:
    if found.p_value >= SURE or found.difference == 0:
        return f"no difference in {label} that these rows could show (p = {found.p_value:.3f})"
    ahead = names[(found.difference > 0) == (better == "higher")]
    return f"{ahead} is better in {label} (p = {found.p_value:.3f})"
