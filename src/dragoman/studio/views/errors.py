"""The rows of a file with a run's outputs beside their references, to see where they differ."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict

import numpy as np

from dragoman.data.examples import Example
from dragoman.evaluation.evaluate import Decoded, measure, source_length
from dragoman.evaluation.rows import (
    decode_rows,
    diff_texts,
    first_examples,
    name_metric,
    nearest_reference,
    row_statistics,
)
from dragoman.inference.system import System
from dragoman.search.options import SearchConfig
from dragoman.serving.queue import UNLIMITED, Job
from dragoman.studio import records
from dragoman.studio.views.media import Link, describe_source, link_nothing
from dragoman.studio.views.reference import TOLERANCE
from dragoman.studio.views.runs import describe_evaluation
from dragoman.studio.views.tokens import RARE_BELOW, rare_tokens, source_tokenizers, unknown_words


def describe_errors(
    system: System,
    examples: Sequence[Example],
    file: str,
    run: str = "",
    beam: int | None = None,
    limit: int = 2000,
    link: Link = link_nothing,
    job: Job = UNLIMITED,
) -> records.Errors:
    """Describe the output for every distinct source with all of its references.

    At most ``limit`` rows are listed. ``link`` says how the page finds a source that is a file.
    """
    began = time.perf_counter()
    decoded = decode_rows(system, examples, beam, job.checkpoint)
    report = measure(system, decoded)
    also = () if system.classes else ("cer",)  # labels are right or wrong as a whole
    statistics = row_statistics(decoded, report, also)
    values = {name: each.row_scores() for name, each in statistics.items()}
    lines = [example.line for example in first_examples(examples)]
    count = min(limit, len(decoded.sources))
    config = system.search_config(beam=beam)
    rows = [_describe_row(system, decoded, index, lines[index], values, link, config) for index in range(count)]
    return records.Errors(
        run=run,
        file=file,
        metrics=[records.MetricName(**asdict(name_metric(name, report))) for name in statistics],
        evaluation=describe_evaluation(report, file),
        rare_below=RARE_BELOW,
        rows=rows,
        left_out=len(decoded.sources) - len(rows),
        seconds=time.perf_counter() - began,
    )


def _describe_row(
    system: System,
    decoded: Decoded,
    index: int,
    line: int,
    values: dict[str, np.ndarray],
    link: Link,
    config: SearchConfig,
) -> records.ErrorRow:
    prediction, scored, targets = decoded.predictions[index], decoded.scored[index], decoded.references[index]
    source = decoded.sources[index]
    tokenizers = source_tokenizers(system)
    spans = diff_texts(prediction.text, nearest_reference(prediction.text, targets), whole=bool(system.classes))
    texts, files = describe_source(system, source, link)
    is_right = prediction.text in targets
    own = prediction.outputs[0].log_prob / config.penalty(max(1, len(prediction.tokens)))
    wanted = scored.log_prob / config.penalty(len(scored.tokens))
    return records.ErrorRow(
        index=index,
        line=line,
        source=texts,
        files=files,
        references=targets,
        output=prediction.text,
        correct=is_right,
        values={name: float(scores[index]) for name, scores in values.items()},
        log_prob=prediction.outputs[0].log_prob,
        reference_log_prob=scored.log_prob if np.isfinite(scored.log_prob) else None,
        search_error=not is_right and wanted > own + TOLERANCE,
        source_length=source_length(system, source),
        output_length=len(prediction.tokens),
        reference_length=len(scored.tokens),
        unknown=[word for name, tokenizer in tokenizers.items() for word in unknown_words(tokenizer, source[name])],
        rare=[token for name, tokenizer in tokenizers.items() for token in rare_tokens(tokenizer, source[name])],
        spans=[records.Span(**asdict(span)) for span in spans],
    )
