"""The verb ``check``: the audit of a data set, without training."""

from __future__ import annotations

import importlib.util
import pkgutil
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.cli.options import Files, Json, Root, SourceColumn, TargetColumn, data_settings, print_json

if TYPE_CHECKING:
    from dragoman.data.options import DataConfig


def _modality_kinds() -> str:
    """Return the kinds of modalities in words: the files of their folder, which help must not import."""
    spec = importlib.util.find_spec("dragoman.modalities")
    folders = spec.submodule_search_locations if spec else None
    names = [module.name for module in pkgutil.iter_modules(folders)]
    kinds = sorted(name for name in names if not name.startswith("_"))
    return f"{', '.join(kinds[:-1])} or {kinds[-1]}"


def check(
    files: Files,
    dev: Annotated[str | None, typer.Option(help="Dev file to check for overlap with FILE.")] = None,
    test: Annotated[str | None, typer.Option(help="Test file to check for overlap with FILE.")] = None,
    source: SourceColumn = None,
    target: TargetColumn = None,
    root: Root = None,
    kind: Annotated[
        str | None,
        typer.Option(help=f"Kind of the source, if file names do not tell: {_modality_kinds()}."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="Read the data as this preset does, e.g. lm-rnn for plain text.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Change a setting of the data, e.g. data.format=tsv. May be repeated.", metavar="KEY=VALUE"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Audit the data before training: dropped and repaired rows, lengths, overlap with dev and test."""
    from dragoman.data.examples import overlap
    from dragoman.data.reading.read import read

    config = _data_config(source, target, root, settings)
    if preset is not None:
        config = _as_preset_reads(preset, config)
    corpus = read(files, config, _source_kinds(kind, config))
    others = {name: read(path, config, corpus.kinds) for name, path in (("dev", dev), ("test", test)) if path}
    overlaps = {name: overlap(corpus.examples, other.examples) for name, other in others.items()}
    if as_json:
        print_json(
            {
                "train": corpus.audit.to_json(),
                **{name: other.audit.to_json() for name, other in others.items()},
                "overlap": {name: each.to_json() for name, each in overlaps.items()},
            }
        )
        return
    typer.echo(corpus.audit.report())
    for name, other in others.items():
        typer.echo(f"\n{name}: {other.audit.report()}\n\n{name}: {overlaps[name].report()}")


def _data_config(
    source: list[str] | None, target: str | None, root: str | None, settings: list[str] | None
) -> DataConfig:
    """Return the settings of the data that the options give; ``--set`` may change no others."""
    from pydantic import ValidationError

    from dragoman.config import ConfigError, explain, parse_overrides
    from dragoman.data.options import DataConfig

    others = parse_overrides(settings or [])
    data = others.pop("data", {})
    if others or not isinstance(data, dict):
        wrong = next(iter(others), "data")
        raise ConfigError(f"--set {wrong}: check uses settings of the data only, for example data.format=tsv")
    try:
        return DataConfig(**(data | data_settings(source, target, root)))
    except ValidationError as error:
        raise explain(error, DataConfig, "data") from None


def _as_preset_reads(preset: str, config: DataConfig) -> DataConfig:
    """Return the preset's settings of the data, changed by those that were given."""
    from dragoman.recipe.layers import gather_settings
    from dragoman.recipe.schema import make_reading

    return make_reading(gather_settings(preset, overrides={"data": config.model_dump(exclude_unset=True)}))


def _source_kinds(kind: str | None, config: DataConfig) -> dict[str, str]:
    """Return the kind of every source if ``--kind`` gives it, else nothing."""
    from dragoman.config import nearest
    from dragoman.data.examples import SOURCE
    from dragoman.errors import UserError
    from dragoman.parts import kinds

    if kind is None:
        return {}
    if kind not in kinds("modality"):
        raise UserError(f"--kind {kind}: no such kind; {nearest(kind, kinds('modality'))}")
    return dict.fromkeys(config.column_selection().sources or [SOURCE], kind)
