"""The verbs ``evaluate`` and ``score``: how good a run is on a given file."""

from __future__ import annotations

import json
import math
import sys

import typer

from dragoman.cli.measuring import Measuring, read_corpus, takes_measuring
from dragoman.cli.messages import Messages, Quiet, Verbose, progress_bar, terminal_width
from dragoman.cli.options import (
    BatchSize,
    Device,
    Ensemble,
    Files,
    Json,
    Root,
    Run,
    SourceColumn,
    TargetColumn,
    describe_search,
    load_system,
    print_json,
)
from dragoman.tables import shorten


@takes_measuring
def evaluate(options: Measuring) -> None:
    """Measure a run on a file with references. A folder of seeds is measured by the mean of its runs."""
    from dragoman.evaluation import verbs

    messages, run = options.messages, options.run
    lm = options.lm, options.lm_weight
    systems = verbs.load_seeds(run, options.device, options.ensemble or (), *lm, options.engine)
    system = next(iter(systems.values()))
    corpus = options.read(system)
    messages.detail(f"{system!r}, {system.describe_engine()}")
    messages.detail(corpus.audit.report(terminal_width(sys.stderr)))
    messages.detail(f"search: {describe_search(system.search_config(beam=options.beam, ctc=options.ctc))}")
    with progress_bar("evaluating", messages) as on_progress:
        report = verbs.evaluate_runs(systems, corpus.examples, on_progress=on_progress, **options.decoding())
    if options.as_json:
        print_json({"run": str(run), "audit": corpus.audit.to_json(), **report.to_json()})
    else:
        typer.echo(f"{' '.join(options.files)}: {corpus.audit.summary()}\n{report.to_text()}", nl=False)


def score(
    run: Run,
    files: Files,
    batch: BatchSize = 64,
    source: SourceColumn = None,
    target: TargetColumn = None,
    root: Root = None,
    as_json: Json = False,
    ensemble: Ensemble = None,
    device: Device = "auto",
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Print the log-probability and perplexity of given targets or, for a language model, texts.

    Each row gives a line: log-probability, perplexity, target. Standard error has a summary.
    """
    from dragoman.evaluation import verbs
    from dragoman.evaluation.metrics import split_words

    messages = Messages.of(quiet, verbose)
    system = load_system(run, device, ensemble)
    corpus = read_corpus(system, files, source, target, root)
    messages.detail(f"{system!r}, {system.describe_engine()}")
    messages.detail(corpus.audit.report(terminal_width(sys.stderr)))
    examples = corpus.examples
    texts = [example.target for example in examples]
    scored_rows = verbs.score_examples(system, examples, batch)
    for example, scored in zip(examples, scored_rows, strict=True):
        if as_json:
            plain = {"line": example.line, "log_prob": scored.log_prob, "perplexity": scored.perplexity,
                     "tokens": scored.tokens, "log_probs": scored.log_probs}  # fmt: skip
            plain |= {} if scored.is_label is None else {"is_label": scored.is_label}
            typer.echo(json.dumps(plain, ensure_ascii=False))
        else:
            typer.echo(f"{scored.log_prob:.4f}\t{scored.perplexity:.4f}\t{example.target}")
    log_prob = sum(scored.log_prob for scored in scored_rows)
    tokens = sum(len(scored.tokens) for scored in scored_rows)

    def perplexity(units: int) -> float:
        return math.exp(min(700, -log_prob / max(units, 1)))

    summary = (
        f"{corpus.audit.summary()}; log-probability {log_prob:.2f} over {tokens:,} tokens, "
        f"perplexity {perplexity(tokens):.3f}"
    )
    if system.is_language_model:  # as in ``evaluate``, the end of a line counts as a word and as a character
        per_word = perplexity(sum(len(split_words(text)) + 1 for text in texts))
        per_character = perplexity(sum(len(text) + 1 for text in texts))
        summary += f" per token, {per_word:.3f} per word, {per_character:.3f} per character"
    if unknown := [example for example, scored in zip(examples, scored_rows, strict=True) if scored.unknown]:
        first = f"line {unknown[0].line}: {shorten(unknown[0].target)}"
        summary += f"; targets with unknown tokens, scored as <unk>: {len(unknown):,} ({first})"
    messages.note(summary)
    if others := [example for example, scored in zip(examples, scored_rows, strict=True) if scored.is_label is False]:
        first = f"{others[0].unit} {others[0].line}: {shorten(others[0].target)!r}"
        messages.note(
            f"dragoman: {len(others):,} of {len(examples):,} targets are no label of this run ({first}), so it never "
            f"answers with them, and their numbers say little; its labels: {shorten(', '.join(system.classes), 200)}"
        )
