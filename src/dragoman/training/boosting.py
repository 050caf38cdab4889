"""``dragoman.boost``: train an ensemble of seeds, and fold it into one model of the same size.

The folded model learns from the training rows and from what the ensemble makes of their sources
(sequence-level distillation: Kim & Rush 2016, section 3.2), and of more sources where there are some
(Sun et al. 2019, section 3.2, who label words that nobody transcribed). With ``tokens`` it also learns, on
all these rows, the ensemble's probabilities of each token (token-level distillation: ``training.distill``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman.config import merge
from dragoman.data.augment.apply import MADE_HEADER, read_lines
from dragoman.data.examples import Example
from dragoman.data.splits import PathLike
from dragoman.errors import UserError
from dragoman.evaluation.evaluate import evaluate
from dragoman.evaluation.metrics import METRICS, Report
from dragoman.files import write_atomically, write_json
from dragoman.inference.load import load
from dragoman.inference.system import System
from dragoman.recipe.arguments import data_settings, with_arguments
from dragoman.recipe.layers import ConfigSource, Overrides, read_overrides
from dragoman.recipe.schema import Recipe
from dragoman.runs.folder import ENSEMBLE_FOLDER, IDENTITY, default_folder
from dragoman.training import run, seed_runs
from dragoman.training.group_display import GroupDisplay
from dragoman.training.plan import Plan
from dragoman.training.plan.asking import ask
from dragoman.training.plan.reading import read
from dragoman.training.seeds import read_report
from dragoman.training.verbs import make_job

DISTILLED, FIGURES = "distilled.tsv", "boost.json"


@dataclass(frozen=True, slots=True)
class Boosted:
    """A folded model, and the scores of all three on the same rows."""

    system: System
    metric: str
    side: str  # that was measured: "test" or "dev"
    singles: tuple[float, ...]  # of the runs of the ensemble
    ensemble: float
    folded: float
    tokens: bool = False  # the folded model has learnt the ensemble's probabilities, not its outputs alone

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        figures = {"singles": list(self.singles), "ensemble": self.ensemble, "folded": self.folded}
        return {"metric": self.metric, "side": self.side, **figures, "tokens": self.tokens}

    def to_text(self) -> str:
        """Return the figures as a table."""
        metric = METRICS[self.metric]
        mean = sum(self.singles) / len(self.singles)
        rows = [
            (f"single runs, mean of {len(self.singles)}", mean),
            ("ensemble of them", self.ensemble),
            ("folded into one", self.folded),
        ]
        lines = [f"  {name:<26}  {value:8.2f}" for name, value in rows]
        learnt = "its outputs and its probabilities of each token" if self.tokens else "its outputs alone"
        title = f"{metric.label} on {self.side} ({metric.better} is better)"
        return "\n".join([title, "", *lines, "", f"folded: learnt from {learnt}"]) + "\n"


def boost(
    files: Any,
    dev: Any = None,
    test: Any = None,
    *,
    out: PathLike | None = None,
    seeds: int = 3,
    sources: PathLike | None = None,
    tokens: bool = False,
    preset: str | None = None,
    config: ConfigSource | None = None,
    settings: Overrides = (),
    source: str | int | Sequence[str | int] | Mapping[str, str | int] | None = None,
    target: str | int | None = None,
    workers: int | None = None,
    fresh: bool = False,
    display: GroupDisplay | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Boosted:
    """Train ``seeds`` runs side by side, and fold their ensemble into one model of the same size.

    The arguments are the options of ``dragoman boost``; the data is one text source and a target, in
    files. ``sources`` is a text file with more sources, which the ensemble labels too. With ``tokens`` the
    folded model also learns the ensemble's probabilities of each token, where their tokens are the same.
    The folded model is the run of ``out``; the ensemble is in its folder ``ensemble``. The same call again
    resumes.
    """
    overrides = with_arguments(read_overrides(settings), data=data_settings(source, target, None))
    folder = default_folder(files) if out is None else Path(out)
    if fresh:
        seed_runs.set_aside(folder)
    elif folder.exists() and (folder / IDENTITY).exists() and not (folder / ENSEMBLE_FOLDER).exists():
        raise UserError(f"{folder}: holds a run without an ensemble; choose another --out, or --fresh to set it aside")
    job = make_job(files, dev, test, folder / ENSEMBLE_FOLDER, preset, config, overrides)
    _refuse_other_kinds(job.train, job.dev, job.test, preset, config, overrides)
    runs = seed_runs.plan_seeds(job, seeds, workers=workers)
    trained = seed_runs.train_seeds(runs, runs.unfinished(), display or GroupDisplay(), should_stop)
    if trained.interrupted:
        raise KeyboardInterrupt
    if trained.failures:
        reasons = "; ".join(f"{failure.job.name}: {failure.describe()}" for failure in trained.failures)
        raise UserError(f"{len(trained.failures)} of {seeds} runs failed; the same call tries them again; {reasons}")
    members = load(runs.folders)
    plans: list[Plan] = []
    distilled = folder / ENSEMBLE_FOLDER / DISTILLED
    if not distilled.exists():
        request = ask(preset, config, overrides)
        train = read(request, job.train, job.dev, job.test).data.train
        _write_distilled(members, train, None if sources is None else Path(sources), distilled)
    augment = {"data": {"augment": {"rows": str(distilled)}}}
    teaching = _teach_tokens(members, runs.folders, ask(preset, config, overrides).recipe) if tokens else {}
    system = run.train(
        job.train, job.dev, job.test, out=folder, preset=preset, config=config,
        settings=merge(merge(overrides, augment), teaching),
        on_plan=lambda plan, *_: plans.append(plan), should_stop=should_stop,
    )  # fmt: skip
    folded = read_report(folder, runs.side)
    if folded is None:
        raise KeyboardInterrupt
    singles = [report for each in runs.folders if (report := read_report(each, runs.side)) is not None]
    rows = plans[0].data.test if runs.side == "test" else plans[0].data.dev
    together = _measure(members, rows, folded.headline)
    boosted = Boosted(
        system, folded.headline, runs.side, tuple(each.value for each in singles), together.value, folded.value,
        tokens=bool(teaching),
    )  # fmt: skip
    write_json(folder / FIGURES, boosted.to_json())
    return boosted


def _measure(system: System, rows: Sequence[Example], metric: str) -> Report:
    return evaluate(system, rows, headline=metric, names=[metric])


def _teach_tokens(members: System, folders: Sequence[Path], recipe: Recipe) -> dict[str, Any]:
    """Return the settings by which the folded model learns the ensemble's probabilities; none if it cannot.

    It has the target tokens of the ensemble. A tokeniser of subwords for the source is fitted to more rows than the
    ensemble's, and could split a text differently. Copies are no tokens of the vocabulary.
    """
    own = [modality.tokenizer for modality in members.modalities.values()]
    differs = not members.recipe.share_vocabulary and any(each is None or each.order_matters for each in own)
    if differs or members.recipe.copying:
        return {}
    tokenizer = recipe.init.target_tokenizer or str(folders[0])
    teachers = [str(folder) for folder in folders]
    return {"training": {"distill": {"teachers": teachers}}, "init": {"target_tokenizer": tokenizer}}


def _refuse_other_kinds(
    train: Any, dev: Any, test: Any, preset: str | None, config: ConfigSource | None, settings: Overrides
) -> None:
    """Refuse data that cannot be labelled, before anything is trained."""
    kinds = read(ask(preset, config, settings), train, dev, test).data.kinds
    if list(kinds.values()) != ["text"]:
        found = ", ".join(kinds.values()) or "none"
        raise UserError(f"boost labels texts: the data needs one source that is text, but its sources are {found}")


def _write_distilled(members: System, train: Sequence[Example], more: Path | None, path: Path) -> None:
    """Write what the ensemble makes of the sources of the training rows, and of more sources."""
    (name,) = train[0].sources
    texts = dict.fromkeys(row.sources[name] for row in train if not row.made)
    texts |= dict.fromkeys(read_lines(more) if more is not None else ())
    outputs = [prediction.text for prediction in members.predict(list(texts))]
    rows = [(text, output) for text, output in zip(texts, outputs, strict=True) if output and "\t" not in text + output]
    write_atomically(path, "\n".join([MADE_HEADER, *("\t".join(row) for row in rows)]) + "\n")
