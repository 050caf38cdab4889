"""``dragoman.check``: the audit of data as training would read it, without training."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dragoman.config import ConfigError, explain, nearest
from dragoman.data import tokenizers
from dragoman.data.audit.audit import WIDTH, Audit
from dragoman.data.corpus.mapped.folder import Progress, Workspace, silent
from dragoman.data.corpus.mapped.rows import MappedRows
from dragoman.data.examples import SOURCE, TARGET, Example, Overlap
from dragoman.data.options import DataConfig
from dragoman.data.reading.read import Corpus, read
from dragoman.data.splits import find_overlap, hold_out
from dragoman.data.tokenizers import TokenizerConfig
from dragoman.errors import UserError
from dragoman.parts import kinds
from dragoman.recipe.arguments import data_settings, with_known_arguments
from dragoman.recipe.classes import Labels, find_classes
from dragoman.recipe.layers import Overrides, gather_settings, read_overrides
from dragoman.recipe.limits import Foreseen, foresee
from dragoman.recipe.schema import make_reading
from dragoman.tables import html_text, make_frame


@dataclass(frozen=True, slots=True, repr=False)
class DataCheck:
    """The audits of training, dev and test data, and how much of dev and test is in training too."""

    corpora: Mapping[str, Corpus]  # "train", and "dev" and "test" where they were given
    overlaps: Mapping[str, Overlap]  # of dev and test
    tokens: Foreseen | None = None  # what training does with long rows; None: there are none
    labels: Labels | None = None  # the targets, if training takes them as classes

    @property
    def audit(self) -> Audit:
        """Return the audit of the training data."""
        return self.corpora["train"].audit

    def __repr__(self) -> str:
        return f"DataCheck({', '.join(f'{name}: {each.audit.summary()}' for name, each in self.corpora.items())})"

    def _repr_html_(self) -> str:
        return html_text(self.to_text())

    def to_text(self, width: int = WIDTH) -> str:
        """Return the report for a terminal of ``width`` columns."""
        parts = [self.audit.report(width)]
        if self.labels is not None:
            parts.append(_fold(self.labels.lines(), width))
        if self.tokens is not None:
            parts.append(_fold(self.tokens.lines(), width))
        for name, overlapping in self.overlaps.items():
            parts += [f"{name}: {self.corpora[name].audit.report(width)}", f"{name}: {overlapping.report()}"]
        return "\n\n".join(parts) + "\n"

    def to_json(self) -> dict[str, Any]:
        """Return the audits as plain values, ready for ``json.dumps``."""
        return {
            **{name: corpus.audit.to_json() for name, corpus in self.corpora.items()},
            "overlap": {name: each.to_json() for name, each in self.overlaps.items()},
            "tokens": None if self.tokens is None else self.tokens.to_json(),
            "classes": None if self.labels is None else self.labels.to_json(),
        }

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with one row for each kind of finding in each file."""
        return make_frame(
            {"data": name, **row} for name, corpus in self.corpora.items() for row in corpus.audit.to_rows()
        )


@with_known_arguments
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
    on_row: Callable[[int], None] | None = None,
    on_progress: Progress = silent,
) -> DataCheck:
    """Audit data before training: dropped and repaired rows, lengths, overlap with dev and test.

    The arguments are those of ``dragoman check``. ``on_row`` is called with the number of rows of the
    data that are read so far. ``on_progress`` is called while very many rows are
    read, with the stage, the rows done, and the rows in all if that is known. Nothing here needs
    torch.

    >>> checked = dragoman.check("pairs.tsv")
    >>> checked
    DataCheck(train: 6 of 6 rows used (100.0%))
    >>> checked.audit.count("duplicate")
    0
    """
    config, max_tokens = _data_config(source, target, root, settings)
    chosen: dict[str, Any] = {}  # the settings of a preset
    if preset is not None:
        chosen = gather_settings(preset, overrides={"data": config.model_dump(exclude_unset=True)})
        config = make_reading(chosen)
    corpora = {
        "train": read(files, config, _source_kinds(kind, config), on_row, workspace=Workspace(progress=on_progress))
    }
    for name, others in (("dev", dev), ("test", test)):
        if others is not None:
            corpora[name] = read(others, config, corpora["train"].kinds, on_row)
    held_out = [name for name in corpora if name != "train"]
    overlaps = {name: find_overlap(corpora["train"].examples, corpora[name].examples) for name in held_out}
    corpus = corpora["train"]
    if config.running or not corpus.examples or isinstance(corpus.examples, MappedRows):
        return DataCheck(corpora, overlaps)  # of rows on disk, the plan of the training says more
    configs = _tokenizer_configs(corpus, chosen)
    try:
        rows, *sides = hold_out(corpus.examples, config, corpora)
    except UserError:  # too few rows for training
        rows, sides = list(corpus.examples), []
    foreseen = foresee(rows, corpus.kinds, configs, max_tokens or chosen.get("max_tokens"), is_auto=not chosen)
    if foreseen is not None and not foreseen.is_refused:
        for row, reason in foreseen.too_long.items():  # dev and test are never cut
            corpus.audit.drop(rows[row], "too_many_tokens", reason)
    others = [*sides, *(corpora[name].examples for name in held_out)]
    labels = _find_labels(corpus, rows, others, configs[TARGET], chosen) if sides and corpus.kinds else None
    return DataCheck(corpora, overlaps, foreseen, labels)


def _fold(lines: Sequence[str], width: int) -> str:
    """Return lines as a text in which none is wider than the terminal."""
    folded = (
        textwrap.wrap(line, width, subsequent_indent="    ", break_on_hyphens=False) if len(line) > width else [line]
        for line in lines
    )
    return "\n".join(each for some in folded for each in some)


def _tokenizer_configs(corpus: Corpus, chosen: Mapping[str, Any]) -> dict[str, TokenizerConfig]:
    """Return the settings of the tokenisers of the sources and the target; ``chosen``: those of a preset."""
    sources = chosen.get("sources", {})
    tables = {name: sources.get(name, sources.get(SOURCE, {})).get("modality", {}) for name in corpus.kinds}
    settings = {name: table.get("tokenizer", {}) for name, table in tables.items() if isinstance(table, Mapping)}
    settings[TARGET] = chosen.get("target", {}).get("tokenizer", {})
    return {
        name: TokenizerConfig(**({"kind": table} if isinstance(table, str) else table))
        for name, table in settings.items()
    }


def _find_labels(
    corpus: Corpus,
    rows: Sequence[Example],
    others: Sequence[Sequence[Example]],
    config: TokenizerConfig,
    chosen: Mapping[str, Any],
) -> Labels | None:
    """Return the labels that training would take as classes, counted in all rows of the data; None: there are none."""
    wanted = str(chosen.get("target", {}).get("classes", "auto"))
    targets = [example.target for example in rows]
    held_out = [example.target for side in others for example in side]
    if not find_classes(targets, held_out, None, wanted):
        return None  # most data: no tokeniser has to be fitted to know it
    if not find_classes(targets, held_out, tokenizers.fit(config, targets, TARGET), wanted):
        return None
    return Labels(dict(Counter(example.target for example in corpus.examples).most_common()))


def _data_config(source: Any, target: Any, root: Any, settings: Overrides) -> tuple[DataConfig, int | None]:
    """Return the settings of the data that the options give, and ``max_tokens``; no others may be set."""
    others = read_overrides(settings)
    data, max_tokens = others.pop("data", {}), others.pop("max_tokens", None)
    if others or not isinstance(data, Mapping):
        wrong = next(iter(others), "data")
        raise ConfigError(
            f"--set {wrong}: check uses settings of the data and max_tokens only, for example data.format=tsv"
        )
    if max_tokens is not None and (type(max_tokens) is not int or max_tokens < 1):
        raise ConfigError(f"max_tokens: input should be a whole number above 0 (got {max_tokens!r})")
    try:
        return DataConfig(**(dict(data) | data_settings(source, target, root))), max_tokens
    except ValidationError as error:
        raise explain(error, DataConfig, "data") from None


def _source_kinds(kind: str | None, config: DataConfig) -> dict[str, str]:
    """Return the kind of every source if ``kind`` gives it, else nothing."""
    if kind is None:
        return {}
    if kind not in kinds("modality"):
        raise UserError(f"--kind {kind}: no such kind; {nearest(kind, kinds('modality'))}")
    return dict.fromkeys(config.column_selection().sources or [SOURCE], kind)
