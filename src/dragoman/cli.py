"""The command line. torch is imported inside the verbs, so that help and completion answer at once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dragoman.cli_inputs import example_call
from dragoman.cli_looking import compare, inspect, report, studio, write_report
from dragoman.cli_options import (
    CTC,
    BatchSize,
    Beam,
    Device,
    Ensemble,
    Files,
    Json,
    LanguageModel,
    LanguageModelWeight,
    Root,
    Run,
    Settings,
    SourceColumn,
    TargetColumn,
)
from dragoman.cli_predict import predict
from dragoman.cli_support import (
    data_config,
    data_settings,
    load_runs,
    print_json,
    read_like,
    said_kinds,
    stoppable,
)

app = typer.Typer(
    name="dragoman",
    help="Train, measure and use sequence-to-sequence models from your own paired files.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def version(asked: bool) -> None:
    if asked:
        from dragoman import __version__

        typer.echo(f"dragoman {__version__}")
        raise typer.Exit


@app.callback()
def options(
    show_version: Annotated[
        bool, typer.Option("--version", callback=version, is_eager=True, help="show the version and exit")
    ] = False,
) -> None:
    pass


@app.command()
def check(
    files: Files,
    dev: Annotated[str | None, typer.Option(help="a dev file, to look for overlap with")] = None,
    test: Annotated[str | None, typer.Option(help="a test file, to look for overlap with")] = None,
    source: SourceColumn = None,
    target: TargetColumn = None,
    root: Root = None,
    kind: Annotated[
        str | None, typer.Option(help="of the source, where names do not tell: text, image, speech or features")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="read as for this preset, e.g. lm-rnn for plain text")] = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Tell the truth about the data, before any training."""
    from dragoman.data.examples import overlap
    from dragoman.data.reading import read

    config = data_config(source, target, root, settings)
    if preset is not None:
        from dragoman.recipe import gather, make_recipe

        asked = config.model_dump(exclude_unset=True)
        config = make_recipe(gather(preset, overrides={"data": asked})).reading
    kinds = said_kinds(kind, config)
    corpus = read(files, config, kinds)
    found: dict[str, Any] = {}
    others = {name: read(path, config, corpus.kinds) for name, path in (("dev", dev), ("test", test)) if path}
    for name, other in others.items():
        found[name] = overlap(corpus.examples, other.examples)
    if as_json:
        print_json(
            {
                "train": corpus.audit.to_json(),
                **{name: other.audit.to_json() for name, other in others.items()},
                "overlap": {name: one.to_json() for name, one in found.items()},
            }
        )
        return
    typer.echo(corpus.audit.report())
    for name, other in others.items():
        typer.echo(f"\n{name}: {other.audit.report()}\n\n{name}: {found[name].report()}")


@app.command()
def train(
    files: Files,
    dev: Annotated[str | None, typer.Option(help="dev file; without one a share is held out")] = None,
    test: Annotated[str | None, typer.Option(help="test file, measured at the end")] = None,
    out: Annotated[Path | None, typer.Option(help="folder of the run [default: runs/NAME]")] = None,
    preset: Annotated[
        str | None, typer.Option(help="a classic system by name, e.g. bahdanau2015 [default: auto]")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="a TOML file of settings")] = None,
    settings: Settings = None,
    init_encoder: Annotated[
        Path | None, typer.Option(help="start the encoder with the weights of this run", metavar="RUN")
    ] = None,
    init_decoder: Annotated[
        Path | None, typer.Option(help="start the decoder with the weights of this run", metavar="RUN")
    ] = None,
    source: SourceColumn = None,
    target: TargetColumn = None,
    root: Root = None,
    max_time: Annotated[float | None, typer.Option(min=1, help="stop after so many seconds of training")] = None,
    seed: Annotated[int | None, typer.Option(help="of weights, order and dropout")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda, …")] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="set an old run in the same folder aside and start anew")
    ] = False,
) -> None:
    """Audit, split, choose a model, train, evaluate and save. Run it again to go on where it stopped."""
    from dragoman import display, workflow
    from dragoman.config import merge, parse_overrides
    from dragoman.run_folder import default_folder

    asked = parse_overrides(settings or [])
    training = {"max_time": max_time, "seed": seed, "device": device}
    origins = {"encoder": init_encoder and str(init_encoder), "decoder": init_decoder and str(init_decoder)}
    for key, options in (("training", training), ("init", origins), ("data", data_settings(source, target, root))):
        said = {name: value for name, value in options.items() if value is not None}
        if said and isinstance(asked.get(key, {}), dict):  # what is no table is left for the recipe to refuse
            asked = merge(asked, {key: said})
    folder = out or default_folder(files)
    show = display.Live() if sys.stderr.isatty() else display.Plain()
    rows: dict[str, Any] = {}  # kept for the report, which need not read the files again

    def on_plan(settled: Any, trainer: Any, place: Path) -> None:
        rows.update(test=settled.data.test, dev=settled.data.dev)
        show.max_time = settled.system.recipe.training.max_time
        display.show_plan(settled, trainer, place)

    with stoppable() as should_stop:
        try:
            system = workflow.train(
                files, dev, test, out=folder, preset=preset, config=config, settings=asked, fresh=fresh,
                on_plan=on_plan, on_event=show, should_stop=should_stop,
            )  # fmt: skip
        finally:
            show.close()
        interrupted = should_stop()
    evaluation = folder / "evaluation.json"
    if interrupted:
        raise typer.Exit(130)
    if evaluation.exists():
        card = (folder / "README.md").read_text(encoding="utf-8")
        scores = "".join(card.partition("## Scores")[1:]).split("## Limits")[0]  # none, if the card was edited
        typer.echo("\n{}\n".format(scores.replace("```\n", "").replace("## ", "").strip()))
        if (page := write_report(folder, system, rows)) is not None:
            typer.echo(f"report: {page}")
    seen: dict[str, str] = next((dict(row.sources) for side in rows.values() for row in side), {})
    is_file = {name: modality.is_file for name, modality in system.modalities.items()}
    typer.echo(f"saved in {folder}; try: {example_call(str(folder), is_file, seen)}")


app.command()(predict)


@app.command()
def evaluate(
    run: Run,
    files: Files,
    beam: Beam = None,
    ctc: CTC = None,
    batch: BatchSize = 64,
    source: SourceColumn = None,
    target: TargetColumn = None,
    root: Root = None,
    as_json: Json = False,
    ensemble: Ensemble = None,
    lm: LanguageModel = None,
    lm_weight: LanguageModelWeight = None,
    device: Device = "auto",
) -> None:
    """Measure a run on a file with references."""
    from dragoman import workflow

    system = load_runs(run, device, ensemble, lm, lm_weight)
    corpus = read_like(system, files, source, target, root)
    report = workflow.evaluate(system, corpus.examples, batch=batch, beam=beam, ctc=ctc)
    if as_json:
        print_json({"run": str(run), "audit": corpus.audit.to_json(), **report.to_json()})
    else:
        typer.echo(f"{' '.join(files)}: {corpus.audit.summary()}\n{report.to_text()}", nl=False)


@app.command()
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
) -> None:
    """Log-probability and perplexity of given targets (or texts): one line a row, and a summary on standard error."""
    from dragoman.metrics import words

    system = load_runs(run, device, ensemble)
    corpus = read_like(system, files, source, target, root)
    examples = corpus.examples
    texts = [one.target for one in examples]
    if system.is_language_model:
        scored = system.score(texts, batch=batch)
    else:
        scored = system.score([dict(one.sources) for one in examples], texts, batch=batch)
    for example, one in zip(examples, scored, strict=True):
        if as_json:
            plain = {"line": example.line, "log_prob": one.log_prob, "perplexity": one.perplexity}
            typer.echo(json.dumps(plain | {"tokens": one.tokens, "log_probs": one.log_probs}, ensure_ascii=False))
        else:
            typer.echo(f"{one.log_prob:.4f}\t{one.perplexity:.4f}\t{example.target}")
    total, tokens = sum(one.log_prob for one in scored), sum(len(one.tokens) for one in scored)
    import math

    def perplexity(units: int) -> float:
        return math.exp(min(700, -total / max(units, 1)))

    summary = (
        f"{corpus.audit.summary()}; log-probability {total:.2f} over {tokens:,} tokens, "
        f"perplexity {perplexity(tokens):.3f}"
    )
    if system.is_language_model:  # as `evaluate` counts: a line's end is a word and a character
        by_word = perplexity(sum(len(words(text)) + 1 for text in texts))
        by_character = perplexity(sum(len(text) + 1 for text in texts))
        summary += f" per token, {by_word:.3f} per word, {by_character:.3f} per character"
    typer.echo(summary, err=True)


for verb in (inspect, compare, report, studio):
    app.command()(verb)


@app.command()
def parts(
    name: Annotated[str | None, typer.Argument(help="a family or a kind, e.g. decoder or decoder.rnn")] = None,
    as_json: Json = False,
) -> None:
    """List all that a config can name: kinds with their options and defaults, other settings, and presets."""
    from dragoman import catalog

    found = catalog.select(name)
    if as_json:
        print_json(catalog.to_json(found))
    else:
        typer.echo(catalog.to_text(found))


def main() -> None:
    """Exit codes: 0 done, 1 a fault of the program or of some inputs, 2 a mistake in the call, config or data."""
    from dragoman.errors import UserError
    from dragoman.memory import keep_pages
    from dragoman.threads import sleep_soon

    keep_pages()
    sleep_soon()
    try:
        app()
    except UserError as error:
        print(f"dragoman: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:  # a full disk, a folder that may not be written: nothing the program can mend
        where = f"{error.filename}: " if error.filename else ""
        print(f"dragoman: {where}{error.strerror or error}", file=sys.stderr)
        sys.exit(UserError.exit_code)


if __name__ == "__main__":
    main()
