"""``dragoman.augment``: make more training rows and write them to a file, to look at and to train with."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dragoman.data.augment.apply import MADE_HEADER, augment_data, describe_made, note_unread, read_lines
from dragoman.data.splits import PathLike, read_data
from dragoman.errors import UserError
from dragoman.files import write_atomically
from dragoman.inference.load import load
from dragoman.recipe.arguments import data_settings, with_arguments
from dragoman.recipe.layers import Overrides, read_overrides
from dragoman.recipe.schema import make_reading


@dataclass(frozen=True, slots=True)
class Augmented:
    """Rows that were made: pairs of a source and a target, and how many of each kind."""

    rows: tuple[tuple[str, str], ...]
    counts: Mapping[str, int] = field(default_factory=dict)
    made_of: int = 0  # training rows
    out: Path | None = None  # the file that they are in
    notes: tuple[str, ...] = ()  # what was left unread

    def __str__(self) -> str:
        return "\n".join([describe_made(dict(self.counts), self.made_of), *self.notes])


def augment(
    files: Any,
    dev: Any = None,
    test: Any = None,
    *,
    out: PathLike | None = None,
    hallucinate: int | None = None,
    copy_targets: bool | None = None,
    both_ways: bool | None = None,
    sources: PathLike | None = None,
    targets: PathLike | None = None,
    model: PathLike | None = None,
    reverse_model: PathLike | None = None,
    source: str | int | Sequence[str | int] | Mapping[str, str | int] | None = None,
    target: str | int | None = None,
    seed: int | None = None,
    settings: Overrides = (),
) -> Augmented:
    """Make more training rows of the same data and return them; with ``out``, also write them to a file.

    The arguments are the options of ``dragoman augment``. The data is split as ``train`` splits it, and
    rows are made of its training side alone. ``sources`` is a text file with more sources, which the run
    ``model`` labels (self-training); ``targets`` is one with more targets, for which ``reverse_model``, a
    run from target to source, makes sources (back-translation), or which are copied without such a run.

    >>> made = dragoman.augment("pairs.tsv", dev="dev.tsv", copy_targets=True)
    >>> made.counts
    {'copied': 6}
    """
    if sources is not None and model is None:
        raise UserError("sources are labelled by a run: give model (--model RUN) too")
    if reverse_model is not None and targets is None:
        raise UserError("reverse_model makes sources for more targets: give targets (--targets FILE) too")
    asked: dict[str, Any] = {
        "hallucinate": hallucinate,
        "copy_targets": copy_targets,
        "both_ways": both_ways,
        "seed": seed,
    }
    if targets is not None and reverse_model is None:
        asked["targets"] = str(targets)
    overrides = with_arguments(read_overrides(settings), data=data_settings(source, target, None))
    chosen = {name: value for name, value in asked.items() if value is not None}
    data_table = dict(overrides.get("data", {}))
    data_table["augment"] = {**data_table.get("augment", {}), **chosen}
    config = make_reading({**overrides, "data": data_table})
    if not config.augment.is_on and sources is None and reverse_model is None:
        raise UserError(
            "nothing is to be made: give hallucinate (--hallucinate N), copy_targets (--copy-targets), both_ways "
            "(--both-ways), or sources or targets (--sources FILE, --targets FILE)"
        )
    data = augment_data(read_data(files, dev, test, config), config)
    made = [example for example in data.train if example.made]
    rows = [(next(iter(example.sources.values())), example.target) for example in made]
    counts = dict(data.augmented)
    held_out = {next(iter(row.sources.values())) for side in (data.dev, data.test) for row in side}
    known = held_out | {next(iter(row.sources.values())) for row in data.train}
    if sources is not None and model is not None:
        new = [text for text in read_lines(sources) if text not in known]
        rows += _pair_with(model, new, "self-trained", counts)
    if targets is not None and reverse_model is not None:
        back = _pair_with(reverse_model, read_lines(targets), "back-translated", counts)
        rows += [(text, line) for line, text in back if text not in held_out]
        counts["back-translated"] = sum(text not in held_out for _, text in back)
    path = None if out is None else _write(rows, Path(out))
    given = [each for each in (config.augment.targets, targets, sources) if each is not None]
    notes = [note for each in dict.fromkeys(map(str, given)) for note in note_unread(each)]
    return Augmented(tuple(rows), counts, len(data.train) - len(made), path, tuple(notes))


def _pair_with(run: PathLike, texts: Sequence[str], name: str, counts: dict[str, int]) -> list[tuple[str, str]]:
    """Return each text with the output of a run for it; texts without an output are left out."""
    system = load(run)
    if len(system.modalities) != 1 or any(modality.is_file for modality in system.modalities.values()):
        raise UserError(f"{run}: texts are labelled by a run with one source that is text")
    outputs = [prediction.text for prediction in system.predict(list(texts))] if texts else []
    pairs = [(text, output) for text, output in zip(texts, outputs, strict=True) if output]
    counts[name] = len(pairs)
    return pairs


def _write(rows: Sequence[tuple[str, str]], path: Path) -> Path:
    """Write rows as a table with tabs and a header; a text with a tab or a line break cannot be written so."""
    broken = next((text for row in rows for text in row if set(text) & set("\t\r\n")), None)
    if broken is not None:
        raise UserError(f"{path}: a text has a tab inside, which a table with tabs cannot hold: {broken!r}")
    buffer = io.StringIO()
    writer = csv.writer(buffer, delimiter="\t", lineterminator="\n", quoting=csv.QUOTE_NONE, quotechar=None)
    writer.writerow(MADE_HEADER.split("\t"))
    writer.writerows(rows)
    write_atomically(path, buffer.getvalue())
    return path
