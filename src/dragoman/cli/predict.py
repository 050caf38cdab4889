"""The verb ``predict``: one output line for each input."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from dragoman.cli.constraints import GlossaryFile, Grammar, JsonSchema, Keep, Known, Lexicon, LexiconWords, Match
from dragoman.cli.messages import Messages, Quiet, Verbose
from dragoman.cli.options import (
    CTC,
    OWN_SETTING,
    BatchSize,
    Beam,
    Device,
    Engine,
    Ensemble,
    Json,
    LanguageModel,
    LanguageModelWeight,
    Run,
    SourceColumn,
    Workers,
    describe_search,
    load_system,
    parse_column,
)


def predict(
    run: Run,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="A text file with one input per line, or a table (TSV, CSV, JSON, Parquet, Arrow or Excel) whose "
            "source columns are read. Pictures, recordings and feature files can be given directly, or as a list of "
            "paths. - is standard input.",
            metavar="FILE",
            show_default="-",
        ),
    ] = None,
    source: SourceColumn = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Take each line as an input as it is, even if it has tabs.")
    ] = False,
    beam: Beam = None,
    n_best: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of outputs per input; with --sample, of samples. Widens the run's own beam if needed.",
            show_default=OWN_SETTING,
        ),
    ] = None,
    batch: BatchSize = 64,
    workers: Workers = None,
    as_json: Json = False,
    normalize: Annotated[
        str | None, typer.Option(help="Length normalisation: none, average or gnmt.", show_default=OWN_SETTING)
    ] = None,
    alpha: Annotated[
        float | None, typer.Option(min=0, help="Exponent of the GNMT length penalty.", show_default=OWN_SETTING)
    ] = None,
    stop: Annotated[
        str | None, typer.Option(help="Stopping rule of the beam: complete or certain.", show_default=OWN_SETTING)
    ] = None,
    ctc: CTC = None,
    forbid: Annotated[
        list[str] | None, typer.Option(help="Text that no output may contain. May be repeated.", metavar="TEXT")
    ] = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of tokens in an output.", show_default=OWN_SETTING)
    ] = None,
    min_length: Annotated[
        int | None, typer.Option(min=0, help="Minimum number of tokens in an output.", show_default=OWN_SETTING)
    ] = None,
    no_repeat_ngram: Annotated[
        int | None,
        typer.Option(
            min=0, help="Size of n-grams that may not repeat in an output; 0 is off.", show_default=OWN_SETTING
        ),
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Sample outputs instead of searching.")] = False,
    temperature: Annotated[float | None, typer.Option(help="Sampling temperature.", show_default=OWN_SETTING)] = None,
    top_k: Annotated[
        int | None,
        typer.Option(min=0, help="Sample from the k most probable tokens; 0 is all.", show_default=OWN_SETTING),
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            help="Sample from the most probable tokens whose probabilities add up to p.", show_default=OWN_SETTING
        ),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed for sampling.", show_default=OWN_SETTING)] = None,
    prefix: Annotated[str | None, typer.Option(help="Text that every output must begin with.")] = None,
    lexicon: Lexicon = None,
    lexicon_words: LexiconWords = False,
    match: Match = None,
    grammar: Grammar = None,
    json_schema: JsonSchema = None,
    glossary: GlossaryFile = None,
    keep: Keep = None,
    known: Known = None,
    ensemble: Ensemble = None,
    lm: LanguageModel = None,
    lm_weight: LanguageModelWeight = None,
    confidence: Annotated[
        bool,
        typer.Option(
            "--confidence",
            help="Add a column after the text: the probability that it is right. With --n-best, after each text.",
        ),
    ] = False,
    abstain: Annotated[
        float | None,
        typer.Option(
            help="Leave out outputs with a lower confidence than this, from 0 to 1: their lines are empty.",
            metavar="P",
        ),
    ] = None,
    abstain_file: Annotated[
        Path | None,
        typer.Option(help="With --abstain: write the inputs whose outputs are left out to this file.", metavar="FILE"),
    ] = None,
    maps: Annotated[
        bool,
        typer.Option("--maps", help="With --json: add the attention and self-attention of every layer and head."),
    ] = False,
    alignments: Annotated[
        bool,
        typer.Option(
            "--alignments",
            help="Add a column after each output: its links to the words of the source, as 0-0 1-2. With --json: links "
            "with weights, times in recordings, boxes in pictures.",
        ),
    ] = False,
    align_unit: Annotated[
        str,
        typer.Option(
            help="What is aligned: words, tokens (characters or symbols, where the tokens are these), or auto."
        ),
    ] = "auto",
    timings: Annotated[
        str | None,
        typer.Option(
            help="Print when each word is heard instead of the output: json, ctm, srt or textgrid. --out is a file, or "
            "for srt and textgrid a folder with a file for each recording.",
            metavar="FORMAT",
        ),
    ] = None,
    alternatives: Annotated[
        int, typer.Option(min=0, help="With --json: add so many of the likeliest tokens at each place of an output.")
    ] = 0,
    device: Device = "auto",
    engine: Engine = "auto",
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of standard output.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the file of --out: inputs whose lines are there are skipped.")
    ] = False,
    shard: Annotated[
        str | None,
        typer.Option(help="Predict one of N parts: every N-th input, from number I on.", metavar="I/N"),
    ] = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Predict one output line for each input, in order.

    Of a table, the columns are read that were the sources in training, by name or place; standard error says which.

    With --n-best, the outputs for an input are separated by tabs. With --confidence, each text is followed by its
    number; with --alignments, by its links after that. --abstain goes by the best output, and leaves out all outputs of
    that input.

    An input that cannot be read, or for which no output is found that obeys the constraints (--lexicon, --match, …),
    gives an empty line, a message on standard error and exit code 1.

    A language model's output is the prompt with its continuation; the prompt may be empty.
    """
    from dragoman.cli.answering import Answering, Asked
    from dragoman.cli.output import Shard
    from dragoman.cli.timings import check_timings
    from dragoman.errors import UserError
    from dragoman.inference.inputs import InputReader
    from dragoman.inference.requests import check_abstain
    from dragoman.runs.confidence import missing_confidence
    from dragoman.runtime.confidence import CONSTANT

    messages = Messages.of(quiet, verbose)
    if maps and not as_json:
        raise UserError("--maps: attention maps are only printed as JSON; add --json")
    if alternatives and not as_json:
        raise UserError("--alternatives: other tokens are only printed as JSON; add --json")
    if abstain_file is not None and abstain is None:
        raise UserError("--abstain-file collects what --abstain leaves out; give the confidence, e.g. --abstain 0.9")
    check_abstain(abstain)
    part = Shard.parse(shard)
    system = load_system(run, device, ensemble, lm, lm_weight, engine)
    if confidence or abstain is not None:
        if system.confidence is None:
            raise missing_confidence(system.folder, system.made_of, system.is_language_model)
        if system.confidence.is_constant:
            messages.note(f"dragoman: {CONSTANT}")
    search: dict[str, Any] = {
        "beam": beam, "n_best": n_best, "normalize": normalize, "alpha": alpha, "stop": stop, "ctc": ctc,
        "max_length": max_length, "min_length": min_length, "no_repeat_ngram": no_repeat_ngram,
        "sample": sample or None, "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed,
        "forbid": forbid,
        "lexicon": lexicon, "lexicon_words": lexicon_words, "match": match, "grammar": grammar,
        "json_schema": json_schema, "glossary": glossary, "keep": keep, "known": known,
    }  # fmt: skip
    if timings is not None:
        check_timings(timings, system, out, {"--json": as_json, "--n-best": bool(n_best), "--resume": resume})
    elif alignments and not as_json and not any(each.has_tokenizer for each in system.modalities.values()):
        raise UserError(
            f"--alignments: {system.name} reads no text that words could be linked to; add --json, or --timings for "
            "recordings"
        )
    messages.detail(f"{system!r}, {system.describe_engine()}")
    session = system.session(**search)
    messages.detail(f"search: {describe_search(session.config)}")
    for note in (*system.describe_forbidden(forbid or ()), *(session.constraints.notes if session.constraints else ())):
        messages.note(f"dragoman: {note}")
    reader = InputReader(
        system,
        lines=lines,
        source=[parse_column(name) for name in source or []],
        note=lambda text: messages.note(f"dragoman: {text}"),
    )
    asked = Asked(
        batch=batch, workers=workers, prefix=prefix, confidence=confidence, abstain=abstain, abstain_file=abstain_file,
        as_json=as_json, maps=maps, alternatives=alternatives, alignments=alignments, align_unit=align_unit,
        timings=timings, out=out, resume=resume, part=part,
    )  # fmt: skip
    answering = Answering(session, reader, asked, messages)
    answering.answer(files or ["-"])
    answering.sum_up()
    if answering.failed:
        raise typer.Exit(1)
