"""The verbs as functions: from files to a trained, measured, saved system."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dragoman import auto, card, metrics
from dragoman.building import build_model
from dragoman.config import ConfigError, merge
from dragoman.contracts import Modality
from dragoman.data import tokenizers
from dragoman.data.audit import Audit
from dragoman.data.examples import SOURCE, Example, Overlap, overlap, references
from dragoman.data.reading import Corpus, DataConfig, read
from dragoman.data.split import split
from dragoman.errors import UserError
from dragoman.files import write_atomically, write_json
from dragoman.modalities.text import Text, rarity
from dragoman.nn.model import Model
from dragoman.parts import kind_of, part
from dragoman.recipe import Recipe, gather, make_recipe
from dragoman.system import Lengths, System, texts_of
from dragoman.training.checkpoint import average, load_weights
from dragoman.training.events import Event, Stopped
from dragoman.training.objective import summed_loss
from dragoman.training.trainer import Scores, Trainer

PathLike = str | Path
Paths = PathLike | Sequence[PathLike]

# Settings that may change between two sittings of one run: they say how long and where, not what is trained.
MAY_CHANGE = {"max_updates", "max_epochs", "max_time", "patience", "save_every", "log_every", "device", "threads"}
DEV_ROWS = 1000  # decoded at each validation


@dataclass
class Data:
    """The three sides of a run and the truth about them."""

    train: list[Example]
    dev: list[Example]
    test: list[Example]
    audits: dict[str, Audit]
    overlaps: dict[str, Overlap] = field(default_factory=dict)
    held_out: str = ""  # how dev and test came about, in a sentence

    def to_json(self) -> dict[str, Any]:
        return {
            "rows": {"train": len(self.train), "dev": len(self.dev), "test": len(self.test)},
            "held_out": self.held_out,
            "files": {name: audit.to_json() for name, audit in self.audits.items()},
            "overlap": {name: found.to_json() for name, found in self.overlaps.items()},
        }

    def fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        for rows in (self.train, self.dev, self.test):
            for example in rows:
                digest.update(json.dumps([dict(example.sources), example.target]).encode())
            digest.update(b"|")
        return digest.hexdigest()


def read_data(train: Paths, dev: Paths | None, test: Paths | None, config: DataConfig) -> Data:
    """Read, audit, and hold out by hash of the source what is not given."""
    corpus = read(train, config)
    audits = {"train": corpus.audit}
    given: dict[str, Corpus] = {}
    for name, paths in (("dev", dev), ("test", test)):
        if paths is not None:
            given[name] = read(paths, config)
            audits[name] = given[name].audit
    dev_share = 0.0 if "dev" in given else config.dev_share
    test_share = 0.0 if given else config.test_share  # a person who brings a dev file has a test file elsewhere
    rows, dev_rows, test_rows = split(corpus.examples, dev_share, test_share, limit=config.held_out_limit)
    sides = [name for name, share in (("dev", dev_share), ("test", test_share)) if share]
    sentence = ""
    if sides:
        sentence = (
            f"{len(dev_rows):,} rows held out as dev"
            + (f" and {len(test_rows):,} as test" if test_share else "")
            + ", chosen by a hash of the source, so that no source stands on two sides"
        )
    data = Data(
        rows,
        given["dev"].examples if "dev" in given else dev_rows,
        given["test"].examples if "test" in given else test_rows,
        audits,
        held_out=sentence,
    )
    data.overlaps = {name: overlap(rows, given[name].examples) for name in given}
    if not data.dev:
        raise UserError("there is nothing to validate on: give --dev, or set data.dev_share above 0")
    return data


@dataclass
class Plan:
    """All that is settled before the first update."""

    system: System
    data: Data
    reasons: list[str]
    metric: metrics.Choice


def plan(
    train: Paths,
    dev: Paths | None = None,
    test: Paths | None = None,
    *,
    preset: str | None = None,
    config: Path | None = None,
    settings: Sequence[str] | Mapping[str, Any] = (),
) -> Plan:
    """Read the data, fit the tokenisers, settle every setting, build the model."""
    asked = gather(preset, config, settings)
    first = make_recipe(asked)
    data = read_data(train, dev, test, first.data)
    names = list(data.train[0].sources)
    if names != [SOURCE] or list(first.sources) != [SOURCE]:
        raise ConfigError(
            f"training takes one source, called {SOURCE!r}, but the data has {', '.join(names) or 'none'} and the "
            f"config has {', '.join(first.sources) or 'none'}; name one column, for example --source 1"
        )
    reasons: list[str] = []
    modalities, target = _fit(first, data, names, reasons)
    shape = _shape(modalities, target, data)
    chosen = auto.choose(shape)
    if asked.get("preset", "auto") != "auto":
        chosen = {"training": chosen["training"]}  # the model is the preset's alone
    recipe = make_recipe(merge(chosen, asked))
    recipe = _with_tokenizers(recipe, modalities, target)
    for name, modality in modalities.items():
        if isinstance(modality, Text):
            modality.config = recipe.sources[name].modality  # type: ignore[assignment]
    _drop_too_long(data, modalities, target, recipe.max_tokens)
    metric = metrics.choose(target.kind, [example.target for example in data.dev])
    if recipe.metric != "auto":
        metric = metrics.Choice(recipe.metric, metric.metrics, "as asked for")
    reasons += _describe(recipe, shape)
    reasons.append(f"metric: {metrics.METRICS[metric.headline].label}, because {metric.reason}")
    model = build_model(recipe, modalities, target)
    lengths = Lengths.of(
        [max((len(m.tensor(e.sources[n])) for n, m in modalities.items()), default=0) for e in data.train],
        [len(target.encode(e.target)) + 1 for e in data.train],
    )
    return Plan(System(recipe, modalities, target, model, lengths), data, reasons, metric)


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
    """Train on paired files and return the system; the same call again goes on where it stopped.

    ``settings`` is a mapping, or strings as for ``--set``. Everything is saved in ``out`` (default: runs/NAME).
    """
    folder = Path(out) if out is not None else default_folder(train)
    settled = plan(train, dev, test, preset=preset, config=None if config is None else Path(config), settings=settings)
    system = settled.system
    if fresh:
        _set_aside(folder)
    _claim(folder, settled)
    trainer = Trainer(
        system.model,
        system.encoded(settled.data.train),
        system.recipe.training,
        folder,
        _validator(settled),
        rarity(system.target.counts),
    )
    system.device = trainer.device
    on_plan(settled, trainer, folder)
    stopped: Stopped | None = None
    for event in trainer.run(should_stop):
        on_event(event)
        stopped = event if isinstance(event, Stopped) else stopped
    if trainer.progress.snapshots:
        load_weights(system.model, average(trainer.snapshot_paths()), folder)
    system.model.eval()
    system.save(folder)
    if stopped is not None and stopped.finished and _evaluated(folder) != stopped.update:
        side = "test" if settled.data.test else "dev"
        rows = settled.data.test or settled.data.dev
        report = evaluate(system, rows, headline=settled.metric.headline, names=settled.metric.metrics)
        write_atomically(folder / "README.md", card.write(system, settled.data.to_json(), side, report, stopped))
        # last: its being there says that all else is
        write_json(folder / "evaluation.json", {"side": side, "update": stopped.update, **report.to_json()})
    return system


def load(folder: PathLike, device: str = "auto") -> System:
    """A trained system from its folder."""
    return System.load(Path(folder), device)


def evaluate(
    system: System,
    examples: Sequence[Example],
    *,
    headline: str | None = None,
    names: Sequence[str] | None = None,
    batch: int = 64,
    **search: Any,
) -> metrics.Report:
    """Decode every distinct source once, and measure against all the targets that stand with it."""
    groups = references(examples)
    sources = [dict(source) for source, _ in groups]
    chosen = metrics.choose(system.target.kind, [targets[0] for _, targets in groups])
    predictions = system.predict(sources, batch=batch, attention=False, trace=False, **search)
    scored = system.score(sources, [targets[0] for _, targets in groups], batch=batch)
    lengths = [max((len(m.labels(s[n])) - 1 for n, m in system.modalities.items()), default=0) for s in sources]
    return metrics.evaluate(
        texts_of(predictions),
        [targets for _, targets in groups],
        headline=headline or (system.recipe.metric if system.recipe.metric != "auto" else chosen.headline),
        metrics=names or chosen.metrics,
        source_lengths=lengths,
        log_probs=[one.log_prob for one in scored],
        tokens=[len(one.tokens) for one in scored],
        symbols=system.target.kind == "symbols",
    )


def default_folder(train: Paths) -> Path:
    first = str(train if isinstance(train, (str, Path)) else train[0])
    if first == "-":
        return Path("runs") / "stdin"
    name = Path(first).name
    for ending in (".gz", ".tsv", ".txt", ".jsonl"):
        name = name.removesuffix(ending)
    return Path("runs") / (name or "run")


# ---- inside


def _fit(
    recipe: Recipe, data: Data, names: Sequence[str], reasons: list[str]
) -> tuple[dict[str, Modality], tokenizers.Tokenizer]:
    texts = {name: [example.sources[name] for example in data.train] for name in names}
    targets = [example.target for example in data.train]
    if recipe.share_vocabulary:
        both = [text for column in texts.values() for text in column] + targets
        target = tokenizers.fit(recipe.target.tokenizer, both, "source and target")
        reasons += target.notes
        return {name: Text(recipe.sources[name].modality, target) for name in names}, target  # type: ignore[arg-type]
    modalities: dict[str, Modality] = {}
    for name in names:
        config = recipe.sources.get(name, recipe.sources[SOURCE]).modality
        modality = part("modality", kind_of(config)).fit(config, texts[name], name)
        reasons += modality.notes
        modalities[name] = modality
    target = tokenizers.fit(recipe.target.tokenizer, targets, "target")
    reasons += target.notes
    return modalities, target


def _with_tokenizers(recipe: Recipe, modalities: Mapping[str, Modality], target: tokenizers.Tokenizer) -> Recipe:
    """The recipe with the kinds that were chosen in place of "auto"."""

    sources = {}
    for name, source in recipe.sources.items():
        modality = modalities[name]
        if isinstance(modality, Text):
            tokenizer = source.modality.tokenizer.resolved(modality.tokenizer.kind)  # type: ignore[attr-defined]
            source = source.model_copy(update={"modality": source.modality.model_copy(update={"tokenizer": tokenizer})})
        sources[name] = source
    side = recipe.target.model_copy(update={"tokenizer": recipe.target.tokenizer.resolved(target.kind)})
    return recipe.model_copy(update={"sources": sources, "target": side})


def _shape(modalities: Mapping[str, Modality], target: tokenizers.Tokenizer, data: Data) -> auto.Shape:
    sources = [
        [len(modality.tensor(example.sources[name])) for example in data.train] for name, modality in modalities.items()
    ]
    targets = [len(target.encode(example.target)) + 1 for example in data.train]
    vocabulary = max((m.tokenizer.size for m in modalities.values() if isinstance(m, Text)), default=0)
    longest = max([*targets, *(length for column in sources for length in column)])
    return auto.Shape(len(data.train), sum(map(sum, sources)), sum(targets), vocabulary, target.size, longest)


def _describe(recipe: Recipe, shape: auto.Shape) -> list[str]:
    """What will be trained, as it was settled, in sentences."""
    model = " and ".join(f"{kind_of(source.encoder)} encoder" for source in recipe.sources.values())
    if recipe.preset == "auto":
        origin = f"chosen for {shape.target_tokens:,} target tokens"
    else:
        origin = f"preset {recipe.preset}, {recipe.reference}"
    width = getattr(recipe.decoder, "width", None)
    size = f" of width {width}" if width else ""
    training = recipe.training
    rounds = f"{training.max_epochs} epochs" if training.max_epochs else f"{training.max_updates} updates"
    return [
        f"model: {model}, {kind_of(recipe.decoder)} decoder{size} ({origin})",
        f"training: at most {rounds}, batches of {training.batch_tokens:,} tokens",
    ]


def _drop_too_long(data: Data, modalities: Mapping[str, Modality], target: tokenizers.Tokenizer, most: int) -> None:
    """Training rows of more than ``most`` tokens are left out, by name; dev and test are never cut."""
    kept = []
    for example in data.train:
        sizes = {name: len(modality.tensor(example.sources[name])) - 1 for name, modality in modalities.items()}
        sizes["target"] = len(target.encode(example.target))
        long = [f"{name} has {size} tokens" for name, size in sizes.items() if size > most]
        if long:
            reason = f"{' and '.join(long)}; the limit is max_tokens = {most}"
            data.audits["train"].drop(example, "too_many_tokens", reason)
        else:
            kept.append(example)
    if not kept:
        raise UserError(f"every training row has more than max_tokens = {most} tokens; --set max_tokens=… raises it")
    data.train = kept


def _validator(settled: Plan) -> Callable[[Model], Scores]:
    system, name = settled.system, settled.metric.headline
    groups = references(settled.data.dev)[:DEV_ROWS]
    sources, targets = [dict(source) for source, _ in groups], [options for _, options in groups]
    encoded = system.encoded(settled.data.dev)
    batches = encoded.batches(max(4096, max(encoded.target_lengths)), seed=0, epoch=0)
    higher = metrics.METRICS[name].better == "higher"

    def validate(model: Model) -> Scores:
        total, tokens = 0.0, 0
        for rows in batches:
            batch = encoded.batch(rows).to(system.device)
            total += float(summed_loss(model.teach(batch), batch))
            tokens += batch.tokens
        outputs = texts_of(system.predict(sources, beam=1, n_best=1, attention=False, trace=False))
        value = metrics.score(name, outputs, targets)
        return Scores(total / tokens, value if higher else -value, metrics.METRICS[name].label, {name: value})

    return validate


def _evaluated(folder: Path) -> int | None:
    """The update whose weights were last measured."""
    path = folder / "evaluation.json"
    return json.loads(path.read_text(encoding="utf-8"))["update"] if path.exists() else None


def _claim(folder: Path, settled: Plan) -> None:
    """Write what is settled, or see that what is there is the same run."""
    identity = {"recipe": settled.system.recipe.dump(), "data": settled.data.fingerprint()}
    path = folder / "run.json"
    if path.exists():
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            old_recipe, old_data = found["recipe"], found["data"]
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"{path}: damaged ({error}); --fresh sets the old run aside and starts anew") from None
        different = _differences(old_recipe, identity["recipe"])
        if old_data != identity["data"]:
            different.append("the data")
        if different:
            raise UserError(
                f"{folder}: holds another run (different: {'; '.join(different[:4])}); "
                "choose another --out, or --fresh to set the old run aside"
            )
    elif (folder / "checkpoint.safetensors").exists():
        raise UserError(
            f"{folder}: holds a checkpoint, but not the run.json that says what it belongs to; "
            "choose another --out, or --fresh to set the old files aside"
        )
    folder.mkdir(parents=True, exist_ok=True)
    settled.system.save_setup(folder)
    write_json(folder / "audit.json", settled.data.to_json())
    write_json(path, identity)


def _differences(old: Any, new: Any, path: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key in [*old, *(key for key in new if key not in old)]:
            if path == "training" and key in MAY_CHANGE:
                continue
            found += _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
        return found
    return [] if old == new else [f"{path}: {old!r} → {new!r}"]


def _set_aside(folder: Path) -> None:
    if folder.exists():
        if Path.cwd().is_relative_to(folder.resolve()):
            raise UserError(f"--fresh: {folder} is the folder you are in and cannot be set aside; choose another --out")
        number = 1
        while (old := folder.with_name(f"{folder.name}.old-{number}")).exists():
            number += 1
        folder.rename(old)
