"""The verbs as functions: from files to a trained, measured, saved system."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dragoman import card, metrics
from dragoman.combining import EnsembleSystem, FusedSystem
from dragoman.data.examples import Example, references
from dragoman.errors import UserError
from dragoman.files import write_atomically, write_json
from dragoman.modalities.text import rarity
from dragoman.nn.model import Model
from dragoman.planning import Plan, plan
from dragoman.predictions import Prediction, Scored, texts_of
from dragoman.run_folder import claimed, default_folder, evaluated
from dragoman.sides import PathLike, Paths, decoded_at_validations
from dragoman.system import System
from dragoman.training.events import Event, Scores, Stopped
from dragoman.training.objective import summed_loss
from dragoman.training.trainer import Trainer

DEFAULT_LM_WEIGHT = 0.3


def train(
    train: Paths,
    dev: Paths | None = None,
    test: Paths | None = None,
    *,
    out: PathLike | None = None,
    preset: str | None = None,
    config: PathLike | None = None,
    settings: Sequence[str] | Mapping[str, Any] = (),
    fresh: bool = False,
    on_plan: Callable[[Plan, Trainer, Path], None] = lambda *_: None,
    on_event: Callable[[Event], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> System:
    """Train on paired files (or plain text, with a preset for it) and return the system.

    The same call again goes on where it stopped. ``settings`` is a mapping, or strings as for ``--set``. Everything is
    saved in ``out`` (default: runs/NAME).
    """
    folder = Path(out) if out is not None else default_folder(train)
    settled = plan(train, dev, test, preset=preset, config=None if config is None else Path(config), settings=settings)
    with claimed(folder, settled, fresh=fresh):
        return _train(settled, folder, on_plan, on_event, should_stop)


def _train(
    settled: Plan,
    folder: Path,
    on_plan: Callable[[Plan, Trainer, Path], None],
    on_event: Callable[[Event], None],
    should_stop: Callable[[], bool],
) -> System:
    system = settled.system
    trainer = Trainer(
        system.model,
        system.training_data(settled.data.train, folder),
        system.recipe.training,
        folder,
        _validator(settled, folder),
        rarity(system.target.counts),
    )
    system.device = trainer.device
    on_plan(settled, trainer, folder)
    stopped: Stopped | None = None
    for event in trainer.run(should_stop):
        on_event(event)
        stopped = event if isinstance(event, Stopped) else stopped
    trainer.settle(compare=stopped is not None and stopped.finished)  # an interruption is to be quick
    system.model.eval()
    system.save(folder)
    if stopped is not None and stopped.finished and evaluated(folder) != stopped.update:
        side = "test" if settled.data.test else "dev"
        rows = settled.data.test or settled.data.dev
        report = evaluate(system, rows, headline=settled.metric.headline, names=settled.metric.metrics)
        write_atomically(folder / "README.md", card.write(system, settled.data.to_json(), side, report, stopped))
        # last: its being there says that all else is
        write_json(folder / "evaluation.json", {"side": side, "update": stopped.update, **report.to_json()})
    return system


def load(
    folder: Paths, device: str = "auto", *, lm: PathLike | None = None, lm_weight: float = DEFAULT_LM_WEIGHT
) -> System:
    """A trained system from its folder; from several folders, an ensemble.

    With ``lm``, the run of a language model, outputs are ranked by log p(y | x) + ``lm_weight`` * log p_lm(y).
    """
    folders = [folder] if isinstance(folder, (str, Path)) else list(folder)
    members = [System.load(Path(one), device) for one in folders]
    system = members[0] if len(members) == 1 else EnsembleSystem(members)
    return system if lm is None else FusedSystem(system, System.load(Path(lm), device), lm_weight)


def evaluate(
    system: System,
    examples: Sequence[Example],
    *,
    headline: str | None = None,
    names: Sequence[str] | None = None,
    batch: int = 64,
    **search: Any,
) -> metrics.Report:
    """Decode every distinct source once, and measure against all the targets that stand with it.

    A language model is measured by its predictions of the lines themselves, so there is nothing to search for.
    """
    if system.is_language_model:
        return _evaluate_text(system, [example.target for example in examples], batch)
    return measure(system, decode(system, examples, batch=batch, **search), headline=headline, names=names)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Every distinct source of a file once: what stands with it, what the system writes, what it thinks of the first
    target."""

    sources: list[dict[str, str]]
    references: list[list[str]]
    predictions: list[Prediction]
    scored: list[Scored]


def decode(system: System, examples: Sequence[Example], *, batch: int = 64, **search: Any) -> Decoded:
    groups = references(examples)
    sources = [dict(source) for source, _ in groups]
    predictions = system.predict(sources, batch=batch, attention=False, trace=False, **search)
    scored = system.score(sources, [targets[0] for _, targets in groups], batch=batch)
    for one in predictions:
        if one.error is not None:
            raise UserError(one.error)
    return Decoded(sources, [targets for _, targets in groups], predictions, scored)


def measure(
    system: System, decoded: Decoded, *, headline: str | None = None, names: Sequence[str] | None = None
) -> metrics.Report:
    chosen = metrics.choose(system.target.kind, [targets[0] for targets in decoded.references])
    return metrics.evaluate(
        texts_of(decoded.predictions),
        decoded.references,
        headline=headline or (system.recipe.metric if system.recipe.metric != "auto" else chosen.headline),
        metrics=names or chosen.metrics,
        source_lengths=[source_length(system, source) for source in decoded.sources],
        log_probs=[one.log_prob for one in decoded.scored],
        tokens=[len(one.tokens) for one in decoded.scored],
        symbols=system.target.kind == "symbols",
    )


def source_length(system: System, source: Mapping[str, str]) -> int:
    """Of the longest source, in positions, without the end symbol of a text."""
    return max(one.length(source[name]) - (not one.is_file) for name, one in system.modalities.items())


def _evaluate_text(system: System, texts: Sequence[str], batch: int) -> metrics.Report:
    scored = system.score(texts, batch=batch)
    return metrics.evaluate_text(
        texts,
        [one.log_prob for one in scored],
        [len(one.tokens) for one in scored],
        token_kind=system.target.kind,
        unknown=sum(map(system.target.unknown, texts)),
    )


def _validator(settled: Plan, folder: Path) -> Callable[[Model], Scores]:
    if settled.system.is_language_model:
        return _text_validator(settled.system, [example.target for example in settled.data.dev])
    system, name = settled.system, settled.metric.headline
    groups = decoded_at_validations(settled.data.dev)
    sources, targets = [dict(source) for source, _ in groups], [options for _, options in groups]
    encoded = system.encoded(settled.data.dev, folder)
    batches = encoded.batches(max(4096, max(encoded.target_lengths)), seed=0, epoch=0)
    higher = metrics.METRICS[name].better == "higher"

    def validate(model: Model) -> Scores:
        total, tokens = 0.0, 0
        for rows in batches:
            batch = encoded.batch(rows).to(system.device)
            total += float(summed_loss(model.teach(batch), batch))
            tokens += batch.tokens
        if name == "perplexity":
            value = math.exp(min(700.0, total / tokens))
        else:
            outputs = texts_of(system.predict(sources, beam=1, n_best=1, attention=False, trace=False))
            value = metrics.score(name, outputs, targets)
        return Scores(total / tokens, value if higher else -value, metrics.METRICS[name].label, {name: value})

    return validate


def _text_validator(system: System, texts: Sequence[str]) -> Callable[[Model], Scores]:
    label = metrics.METRICS["perplexity"].label

    def validate(model: Model) -> Scores:
        scored = system.score(texts)
        loss = -sum(one.log_prob for one in scored) / sum(len(one.tokens) for one in scored)
        value = math.exp(min(700.0, loss))
        return Scores(loss, -value, label, {"perplexity": value})

    return validate
