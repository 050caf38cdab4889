"""``dragoman.check``: the audit of data as training would read it, without training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dragoman.config import ConfigError, explain, nearest
from dragoman.data.audit.audit import Audit
from dragoman.data.examples import SOURCE, Overlap, overlap
from dragoman.data.options import DataConfig
from dragoman.data.reading.read import Corpus, read
from dragoman.errors import UserError
from dragoman.parts import kinds
from dragoman.recipe.arguments import data_settings
from dragoman.recipe.layers import Overrides, gather_settings, read_overrides
from dragoman.recipe.schema import make_reading
from dragoman.tables import html_text, make_frame


@dataclass(frozen=True, slots=True, repr=False)
class DataCheck:
    """The audits of training, dev and test data, and how much of dev and test is in training too."""

    corpora: Mapping[str, Corpus]  # "train", and "dev" and "test" where they were given
    overlaps: Mapping[str, Overlap]  # of dev and test

    @property
    def audit(self) -> Audit:
        """Return the audit of the training data."""
        return self.corpora["train"].audit

    def __repr__(self) -> str:
        return f"DataCheck({', '.join(f'{name}: {each.audit.summary()}' for name, each in self.corpora.items())})"

    def _repr_html_(self) -> str:
        return html_text(self.to_text())

    def to_text(self) -> str:
        """Return the report for a terminal."""
        parts = [self.audit.report()]
        for name, overlapping in self.overlaps.items():
            parts += [f"{name}: {self.corpora[name].audit.report()}", f"{name}: {overlapping.report()}"]
        return "\n\n".join(parts) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Return the audits as plain values, ready for ``json.dumps``."""
        return {
            **{name: corpus.audit.to_json() for name, corpus in self.corpora.items()},
            "overlap": {name: each.to_json() for name, each in self.overlaps.items()},
        }

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with one row for each kind of finding in each file."""
        return make_frame(
            {"data": name, **row} for name, corpus in self.corpora.items() for row in corpus.audit.to_rows()
        )


def check(
    files: Any,
    dev: Any = None,
    test: Any = None,
    *,
    source: str | int | Sequence[str | int] | Mapping[str, str | int] | None = None,
    target: str | int | None = None,
    root: str | Path | None = None,
    kind: str | None = None,
    preset: str | None = None,
    settings: Overrides = (),
) -> DataCheck:
    """Audit data before training: dropped and repaired rows, lengths, overlap with dev and test.

    The arguments are those of ``dragoman check``. Nothing here needs torch.

    >>> checked = dragoman.check("pairs.tsv")
    >>> checked
    DataCheck(train: 6 of 6 rows used (100.0%))
    >>> checked.audit.count("duplicate")
    0
    """
    config = _data_config(source, target, root, settings)
    if preset is not None:
        config = make_reading(gather_settings(preset, overrides={"data": config.model_dump(exclude_unset=True)}))
    corpora = {"train": read(files, config, _source_kinds(kind, config))}
    for name, others in (("dev", dev), ("test", test)):
        if others is not None:
            corpora[name] = read(others, config, corpora["train"].kinds)
    held_out = [name for name in corpora if name != "train"]
    overlaps = {name: overlap(corpora["train"].examples, corpora[name].examples) for name in held_out}
    return DataCheck(corpora, overlaps)


def _data_config(source: Any, target: Any, root: Any, settings: Overrides) -> DataConfig:
    """Return the settings of the data that the options give; ``settings`` may change no others."""
    others = read_overrides(settings)
    data = others.pop("data", {})
    if others or not isinstance(data, Mapping):
        wrong = next(iter(others), "data")
        raise ConfigError(f"--set {wrong}: check uses settings of the data only, for example data.format=tsv")
    try:
        return DataConfig(**(dict(data) | data_settings(source, target, root)))
    except ValidationError as error:
        raise explain(error, DataConfig, "data") from None


def _source_kinds(kind: str | None, config: DataConfig) -> dict[str, str]:
    """Return the kind of every source if ``kind`` gives it, else nothing."""
    if kind is None:
        return {}
    if kind not in kinds("modality"):
        raise UserError(f"--kind {kind}: no such kind; {nearest(kind, kinds('modality'))}")
    return dict.fromkeys(config.column_selection().sources or [SOURCE], kind)
