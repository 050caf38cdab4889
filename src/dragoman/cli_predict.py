"""The verb ``predict``: from inputs to lines. Light, as ``cli`` is."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from dragoman.cli_inputs import read_inputs
from dragoman.cli_options import CTC, BatchSize, Beam, Device, Ensemble, Json, LanguageModel, LanguageModelWeight, Run
from dragoman.cli_support import chunks, first_few, load_runs


def predict(
    run: Run,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            help="one input a line; - is standard input; for several sources a TSV or JSONL file; pictures, recordings "
            "or feature files themselves, or a list of them",
            show_default="-",
        ),
    ] = None,
    beam: Beam = None,
    n_best: Annotated[int, typer.Option(min=1, help="how many outputs an input; a narrower beam is widened")] = 1,
    batch: BatchSize = 64,
    as_json: Json = False,
    normalize: Annotated[str | None, typer.Option(help="length normalisation: none, average or gnmt")] = None,
    alpha: Annotated[float | None, typer.Option(min=0, help="of --normalize gnmt")] = None,
    stop: Annotated[str | None, typer.Option(help="when a beam is done: complete or certain")] = None,
    ctc: CTC = None,
    forbid: Annotated[
        list[str] | None,
        typer.Option(help="text that no output may hold; may be given repeatedly", metavar="TEXT"),
    ] = None,
    max_length: Annotated[int | None, typer.Option(min=1, help="most tokens an output may have")] = None,
    min_length: Annotated[int | None, typer.Option(min=0, help="fewest tokens an output may have")] = None,
    no_repeat_ngram: Annotated[int | None, typer.Option(min=0, help="no n-gram of this size twice")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="draw from the distribution instead of searching")] = False,
    temperature: Annotated[float | None, typer.Option(help="of sampling")] = None,
    top_k: Annotated[int | None, typer.Option(min=0, help="sample among the k likeliest tokens")] = None,
    top_p: Annotated[float | None, typer.Option(help="sample among the likeliest tokens of this share")] = None,
    seed: Annotated[int | None, typer.Option(help="of sampling")] = None,
    prefix: Annotated[str | None, typer.Option(help="text that every output must begin with")] = None,
    ensemble: Ensemble = None,
    lm: LanguageModel = None,
    lm_weight: LanguageModelWeight = None,
    maps: Annotated[
        bool, typer.Option("--maps", help="with --json: attention of every layer and head, self-attention too")
    ] = False,
    device: Device = "auto",
) -> None:
    """One line out for each line in, in order. With --n-best: the outputs of an input separated by tabs.

    An input that cannot be read has an empty line; why is told on standard error, and the exit code is 1.

    A language model reads prompts: each output is the prompt with its continuation, and an empty line is the start of a
    text.
    """
    from dragoman.errors import UserError

    if maps and not as_json:
        raise UserError("--maps: the maps are told in JSON only; add --json")
    system = load_runs(run, device, ensemble, lm, lm_weight)
    config: dict[str, Any] = {
        "beam": beam, "n_best": n_best, "normalize": normalize, "alpha": alpha, "stop": stop, "ctc": ctc,
        "max_length": max_length, "min_length": min_length, "no_repeat_ngram": no_repeat_ngram,
        "sample": sample or None, "temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed,
    }  # fmt: skip
    if forbid:
        config |= system.forbidding(forbid)
    if sample:
        config |= {"n_best": 1, "samples": n_best}
    out = sys.stdout.buffer
    files = files or ["-"]
    done = 0
    failed = False
    damaged: list[str] = []
    cut: list[int] = []
    at_once = 1 if batch == 1 or (files == ["-"] and sys.stdin.isatty()) else 16 * batch
    for chunk in chunks(
        read_inputs(system, files, damaged), at_once
    ):  # --batch 1 answers each line before it reads the next
        starts = None if prefix is None else [prefix] * len(chunk)
        raws = [one.raw for one in chunk]
        predictions = system.stream(
            raws, batch=batch, attention=as_json, trace=False, maps=maps, prefix=starts, first=done, **config
        )
        for given, prediction in zip(chunk, predictions, strict=True):
            problem = given.problem or prediction.error
            if problem is not None:
                failed = True
                typer.echo(f"dragoman: {problem}", err=True)
            if not prediction.outputs[0].finished and not system.is_language_model:
                cut.append(done + 1)
            if as_json:
                text = json.dumps(prediction.to_json(maps), ensure_ascii=False)
            else:
                text = "\t".join(" ".join(output.text.split("\n")) for output in prediction.outputs)
            out.write(text.encode("utf-8", "replace") + b"\n")
            done += 1
        out.flush()
    if damaged:
        typer.echo(f"dragoman: {first_few(damaged)}: not UTF-8; what cannot be read was taken as U+FFFD", err=True)
    if cut:
        typer.echo(f"dragoman: input {first_few(cut)}: the output had no end and was cut at the length limit", err=True)
    if failed:
        raise typer.Exit(1)
