"""``dragoman.evaluate``, ``score``, ``compare``, ``align`` and ``calibrate``: a run and files in, a result out.

Their options have the names and the meaning of the command line's, which is built of the same functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from dragoman.data.examples import Example
from dragoman.data.splits import PathLike
from dragoman.errors import UserError
from dragoman.evaluation import evaluate as evaluation
from dragoman.evaluation.alignment.choose import choose_alignment
from dragoman.evaluation.calibrate import Fit, fit_confidence
from dragoman.evaluation.compare import Comparison, compare_systems
from dragoman.evaluation.metrics import Report, SeedsReport
from dragoman.evaluation.reading import Column, read_examples
from dragoman.evaluation.several import Entrant, SeveralComparison, compare_several
from dragoman.files import LARGE, read_regular, write_run_file
from dragoman.inference.alignment.aligner import refuse_unaligned
from dragoman.inference.load import load, load_combined
from dragoman.inference.predictions import Scored
from dragoman.inference.system import System
from dragoman.program.file import replace_about
from dragoman.recipe.arguments import check_path, with_known_arguments
from dragoman.runs.alignment import AlignmentChoice
from dragoman.runs.card import CARD, with_confidence
from dragoman.runs.confidence import write_confidence
from dragoman.runs.groups import runs_of, seed_folders
from dragoman.runs.weights import PORTABLE
from dragoman.runtime.confidence import Confidence
from dragoman.runtime.container import Container
from dragoman.tables import Rows

RUN = "the folder of a run, or a system"  # as messages call it
Run: TypeAlias = PathLike | System  # the folder of a run, or the run itself
Columns: TypeAlias = Column | Sequence[Column] | None  # of the sources, in the order of the run


@with_known_arguments
def evaluate(
    run: Run,
    files: Any,
    *,
    beam: int | None = None,
    ctc: float | None = None,
    batch: int = 64,
    workers: int | None = None,
    source: Columns = None,
    target: Column | None = None,
    root: PathLike | None = None,
    ensemble: Sequence[PathLike] = (),
    lm: PathLike | None = None,
    lm_weight: float | None = None,
    device: str = "auto",
    engine: str = "auto",
) -> Report | SeedsReport:
    """Measure a run on data with references, which is read as its training data was.

    A folder of seeds is measured by the mean of its runs. The other arguments are the options of ``dragoman
    evaluate``.

    >>> report = dragoman.evaluate("runs/pairs", "test.tsv")
    >>> report
    Report(exact match ... % [..., ...], 6 rows)
    >>> 0 <= report.value <= 100
    True
    """
    systems = load_seeds(run, device, ensemble, lm, lm_weight, engine)
    examples = _read(next(iter(systems.values())), files, source, target, root)
    return evaluate_runs(systems, examples, batch=batch, workers=workers, beam=beam, ctc=ctc)


@with_known_arguments
def score(
    run: Run,
    files: Any,
    *,
    batch: int = 64,
    source: Columns = None,
    target: Column | None = None,
    root: PathLike | None = None,
    ensemble: Sequence[PathLike] = (),
    device: str = "auto",
) -> Rows[Scored]:
    """Return the log-probability of the target of each row; for a language model, of each text.

    >>> rows = dragoman.score("runs/pairs", "test.tsv")
    >>> len(rows), rows[0].log_prob < 0
    (6, True)
    """
    system = _load(run, device, ensemble)
    return score_examples(system, _read(system, files, source, target, root), batch)


@with_known_arguments
def compare(
    runs: Sequence[Run],
    files: Any,
    *,
    beam: int | None = None,
    source: Columns = None,
    target: Column | None = None,
    root: PathLike | None = None,
    device: str = "auto",
) -> Comparison | SeveralComparison:
    """Compare two runs or more on the same rows: which is better, and how certain is that?

    Each run is compared with the first one; of two, the rows that differ are listed too. A folder of seeds counts as
    one model.

    >>> dragoman.compare(["runs/a", "runs/b"], "test.tsv")
    Comparison(... and ..., 6 rows: no difference in exact match that these rows could show (p = ...))
    """
    if isinstance(runs, (str, Path, System)) or not isinstance(runs, Sequence) or len(runs) < 2:
        raise UserError('compare takes a list of two runs or more: compare(["runs/a", "runs/b"], "test.tsv")')
    entrants = open_entrants(runs, device)
    examples = _read(entrants[0].systems[0], files, source, target, root)
    return compare_entrants(entrants, examples, describe_data(files), beam)


@with_known_arguments
def align(
    run: Run,
    files: Any,
    *,
    source: Columns = None,
    target: Column | None = None,
    root: PathLike | None = None,
    device: str = "auto",
) -> AlignmentChoice:
    """Choose which attention map the alignments of a run are read from, and write the choice into its folder.

    Training does this at its end. ``files`` are pairs like those that the run was trained on. If there is nothing to
    choose, nothing is written, and the default is returned.
    """
    system = run if isinstance(run, System) else load(run, device, engine="torch")
    if system.folder is None or system.engine.describe_members() is not None:
        raise UserError("an alignment is chosen for one run with a folder, where the choice is written")
    refuse_unaligned(system.session())
    examples = _read(system, files, source, target, root)
    choice = choose_alignment(system, examples, examples)
    if choice is None:
        return AlignmentChoice()
    choice.write(system.folder, system.run or "")
    return choice


def calibrate(
    run: Run,
    files: Any,
    *,
    beam: int | None = None,
    ctc: float | None = None,
    batch: int = 64,
    workers: int | None = None,
    source: Columns = None,
    target: Column | None = None,
    root: PathLike | None = None,
    ensemble: Sequence[PathLike] = (),
    lm: PathLike | None = None,
    lm_weight: float | None = None,
    device: str = "auto",
    engine: str = "auto",
) -> Fit:
    """Fit the confidence of a run, or of runs together, on rows that it was not trained on, and keep it in its folder.

    Training does this with its dev rows. The other arguments are the options of ``dragoman calibrate``.

    >>> fit = dragoman.calibrate("runs/a", "dev.tsv")
    >>> fit
    Fit(10 rows, expected calibration error ... points)
    >>> 0 < dragoman.load("runs/a").predict("abc").confidence < 1
    True
    """
    system = _load(run, device, ensemble, lm, lm_weight, engine)
    examples = _read(system, files, source, target, root)
    return calibrate_system(system, examples, batch=batch, workers=workers, beam=beam, ctc=ctc)


def calibrate_system(system: System, examples: Sequence[Example], **options: Any) -> Fit:
    """Fit the confidence of a system and write it beside the weights, into the model file and the model card."""
    if system.folder is None or not system.made_of:
        fit_confidence(system, (), **options)  # says so of a language model
        raise UserError("a confidence is kept in the folder of a run; save the system and load it from there")
    fit = fit_confidence(system, examples, **options)
    write_confidence(system.folder, system.made_of, fit.confidence)
    if len(system.made_of) == 1:
        _tell_others(system.folder, system.made_of[0], fit.confidence)
    return fit


def _tell_others(folder: Path, digest: str, confidence: Confidence) -> None:
    """Write the confidence into the other files of a run that carry it, as far as they are there."""
    model, card = folder / PORTABLE, folder / CARD
    if model.exists():
        container = Container.open(model)
        if container.about().get("weights") == digest:
            write_run_file(model, replace_about(container, {"confidence": confidence.to_json()}))
    if card.exists():
        write_run_file(card, with_confidence(read_regular(card, LARGE).decode("utf-8", "replace"), confidence))


def load_seeds(
    run: Run,
    device: str = "auto",
    ensemble: Sequence[PathLike] = (),
    lm: PathLike | None = None,
    lm_weight: float | None = None,
    engine: str = "auto",
) -> dict[str, System]:
    """Load a run, or all runs of a folder of seeds, by name."""
    if isinstance(run, System):
        return {run.name: _load(run, device, ensemble, lm, lm_weight)}
    folder = Path(check_path(run, "run", RUN))
    if seed_folders(folder) and ensemble:
        raise UserError(f"--ensemble: {folder} holds the runs of several seeds; name one of them, e.g. {folder}/seed-1")
    return {each.name: load_combined(each, device, ensemble, lm, lm_weight, engine) for each in runs_of(folder)}


def evaluate_runs(systems: dict[str, System], examples: Sequence[Example], **options: Any) -> Report | SeedsReport:
    """Measure one run, or the runs of several seeds, on the same examples."""
    if len(systems) > 1:
        return evaluation.evaluate_seeds(systems, examples, **options)
    return evaluation.evaluate(next(iter(systems.values())), examples, **options)


def score_examples(system: System, examples: Sequence[Example], batch: int = 64) -> Rows[Scored]:
    """Score the target of each example, or the text of a language model's."""
    texts = [example.target for example in examples]
    if system.is_language_model:
        return system.score(texts, batch=batch)
    return system.score([dict(example.sources) for example in examples], texts, batch=batch)


def open_entrants(runs: Sequence[Run], device: str = "auto") -> list[Entrant]:
    """Load the runs of a comparison under the names that they go by in it."""
    folders = [
        run.folder or Path("this system") if isinstance(run, System) else Path(check_path(run, "a run", RUN))
        for run in runs
    ]
    names = [folder.resolve().name for folder in folders]
    if len({*names}) < len(names):
        names = [str(folder) for folder in folders]
    return [
        Entrant(name, [run] if isinstance(run, System) else [load(each, device) for each in runs_of(folder)])
        for name, run, folder in zip(names, runs, folders, strict=True)
    ]


def compare_entrants(
    entrants: Sequence[Entrant], examples: Sequence[Example], file: str, beam: int | None = None
) -> Comparison | SeveralComparison:
    """Compare two single runs row by row, or any other number of entrants by their scores."""
    if len(entrants) == 2 and all(len(entrant.systems) == 1 for entrant in entrants):
        (first, second), names = (entrant.systems[0] for entrant in entrants), (entrants[0].name, entrants[1].name)
        return compare_systems(first, second, examples, file, names, beam)
    return compare_several(entrants, examples, file, beam)


def describe_data(files: Any) -> str:
    """Return what data is called in a result: the names of its files, or what it is."""
    if isinstance(files, (str, Path)):
        return str(files)
    if isinstance(files, (list, tuple)) and all(isinstance(file, (str, Path)) for file in files):
        return " ".join(map(str, files))
    return f"the {type(files).__name__}"


def _load(
    run: Run,
    device: str,
    ensemble: Sequence[PathLike] = (),
    lm: PathLike | None = None,
    lm_weight: float | None = None,
    engine: str = "auto",
) -> System:
    if not isinstance(run, System):
        return load_combined(Path(check_path(run, "run", RUN)), device, ensemble, lm, lm_weight, engine)
    if ensemble or lm is not None or lm_weight is not None:
        raise UserError("a system that is loaded is evaluated as it is; give its folder to combine it with others")
    return run


def _read(
    system: System, files: Any, source: Columns, target: Column | None, root: PathLike | None
) -> Sequence[Example]:
    columns = [source] if isinstance(source, (str, int)) else list(source or [])
    return read_examples(
        system, files, source=columns, target=target, root=None if root is None else str(root)
    ).examples
