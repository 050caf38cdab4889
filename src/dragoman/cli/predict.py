"""The verb ``predict``: one output line for each input."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from dragoman.cli.constraints import GlossaryFile, Grammar, JsonSchema, Keep, Known, Lexicon, LexiconWords, Match
from dragoman.cli.counting import LiveCount, is_terminal
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

if TYPE_CHECKING:
    from dragoman.inference.predictions import Prediction, Raw

Item = TypeVar("Item")

SHOWN = 5  # places that a message names; it counts the others
PROBLEMS = 20  # inputs that could not be read which have a message of their own


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
            min=0,
            max=1,
            help="Leave out outputs with a lower confidence than this: their lines are empty.",
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
    from dragoman.cli.output import Shard, open_also, open_output
    from dragoman.cli.timings import SUFFIXES, TimingFiles, check_timings, write_timings
    from dragoman.errors import UserError
    from dragoman.inference.inputs import InputReader
    from dragoman.process.devices import available_cores
    from dragoman.runs.confidence import missing_confidence

    messages = Messages.of(quiet, verbose)
    if maps and not as_json:
        raise UserError("--maps: attention maps are only printed as JSON; add --json")
    if alternatives and not as_json:
        raise UserError("--alternatives: other tokens are only printed as JSON; add --json")
    if abstain_file is not None and abstain is None:
        raise UserError("--abstain-file collects what --abstain leaves out; give the confidence, e.g. --abstain 0.9")
    part = Shard.parse(shard)
    system = load_system(run, device, ensemble, lm, lm_weight, engine)
    if (confidence or abstain is not None) and system.confidence is None:
        raise missing_confidence(system.folder, system.made_of, system.is_language_model)
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
    files = files or ["-"]
    failed = 0  # inputs that could not be read
    reader = InputReader(
        system,
        lines=lines,
        source=[parse_column(name) for name in source or []],
        note=lambda text: messages.note(f"dragoman: {text}"),
    )
    unfinished: list[int] = []  # numbers of inputs: the first few
    unfinished_count = 0
    # At a terminal, and with --batch 1, each line is answered before the next one is read.
    chunk_size = (
        1 if batch == 1 or (files == ["-"] and is_terminal("stdin")) else 16 * batch * (workers or available_cores())
    )
    is_elsewhere = out is not None or not is_terminal("stdout")  # the outputs do not show how far it is
    count = LiveCount("inputs answered", is_terminal("stderr") and is_elsewhere and not quiet)
    timing_files = TimingFiles(timings, out) if timings in SUFFIXES else None
    abstained = 0
    noted = False  # that the confidence was fitted for another search
    with (
        open_output(None if timing_files else out, resume) as (output, written),
        open_also(abstain_file, resume, "--abstain-file") as left_out,
        count,
    ):
        inputs = part.pick(reader.read(files))
        skipped = sum(1 for _ in islice(inputs, written))
        if skipped < written:
            raise UserError(
                f"--resume: {out} has {written:,} lines, but there are {skipped:,} inputs; it belongs to other inputs"
            )
        if written:
            messages.note(f"dragoman: {written:,} lines are in {out} already")
        done = written
        for chunk in _chunks(inputs, chunk_size):
            if timing_files is not None:
                timing_files.check_count(done + len(chunk))
            predictions = session.stream(
                [given.raw for _, given in chunk],
                batch=batch,
                workers=workers,
                attention=as_json,
                alignments=alignments or timings is not None,
                align_unit=align_unit,
                trace=False,
                probabilities=as_json,
                maps=maps,
                alternatives=alternatives,
                prefix=prefix,
                abstain=abstain,
                first=chunk[0][0],
                step=part.count,
            )
            for (number, given), prediction in zip(chunk, predictions, strict=True):
                done += 1
                count(done)
                problem = given.problem or prediction.error
                if problem is not None:
                    failed += 1
                    place = f"{given.place}: " if given.place else ""
                    if failed <= PROBLEMS:
                        typer.echo(f"dragoman: {place}{problem}", err=True)
                if not prediction.outputs[0].finished and not system.is_language_model:
                    unfinished_count += 1
                    unfinished += [number + 1] if len(unfinished) < SHOWN else []
                if prediction.abstained:
                    abstained += 1
                    if left_out is not None:
                        left_out.write(_input_line(prediction.source).encode("utf-8", "replace") + b"\n")
                if confidence and prediction.confidence_note is not None and abstain is None and not noted:
                    noted = True
                    messages.note(f"dragoman: {prediction.confidence_note}")
                if timing_files is not None and out is not None:
                    timing_files.write(prediction)
                    continue
                if timings is not None:
                    text = write_timings(prediction, timings)
                elif as_json:
                    text = json.dumps(prediction.to_json(maps, raw=True), ensure_ascii=False) + "\n"
                else:
                    text = _to_line(prediction, confidence, alignments) + "\n"
                output.write(text.encode("utf-8", "replace"))
            output.flush()
            if left_out is not None:
                left_out.flush()
    if not done:
        messages.note("dragoman: there was no input, so there is no output")
    if reader.damaged:
        places = _first_few(reader.damaged, len(reader.damaged))
        messages.note(f"dragoman: {places}: not UTF-8; undecodable bytes were read as U+FFFD")
    if unfinished:
        places = _first_few(unfinished, unfinished_count)
        messages.note(f"dragoman: input {places}: the output had no end and was cut at the length limit")
    if abstain is not None:
        messages.note(f"dragoman: {abstained:,} of {done - written:,} outputs left out: confidence below {abstain:g}")
    if failed > PROBLEMS:
        typer.echo(f"dragoman: {failed - PROBLEMS:,} more of {done - written:,} inputs could not be answered", err=True)
    if failed:
        raise typer.Exit(1)


def _to_line(prediction: Prediction, confidence: bool, alignments: bool) -> str:
    """Return the outputs, each with its confidence and its links if these are asked for, separated by tabs.

    A line break inside an output becomes a space.
    """
    cells: list[str] = []
    for output in prediction.outputs:
        cells.append(output.text.replace("\n", " "))
        if confidence:
            cells.append("" if output.confidence is None else f"{output.confidence:.4f}")
        if alignments:
            cells.append("" if output.alignment is None else output.alignment.to_pharaoh())
    return "\t".join(cells)


def _input_line(source: Raw) -> str:
    """Return an input as a line: its text, or a JSON object of several sources."""
    return source.replace("\n", " ") if isinstance(source, str) else json.dumps(dict(source), ensure_ascii=False)


def _chunks(items: Iterator[Item], size: int) -> Iterator[list[Item]]:
    """Yield lists of ``size`` items, reading no further ahead than that."""
    chunk: list[Item] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


def _first_few(items: Sequence[object], count: int) -> str:
    """Return the first items as text, with the number of the others. ``count``: of all."""
    more = f" and {count - SHOWN:,} more" if count > SHOWN else ""
    return ", ".join(map(str, items[:SHOWN])) + more
