"""Combinations of parts, and every preset, train, are saved and loaded, and give the same outputs after loading.

The parts are found by listing their folders, so a new encoder, decoder or attention score is combined with the others
without an edit here. Every pair of choices that is legal is tested together in some case; `make test-all` tests the
full product. Which combinations are illegal is written down here; each is refused with a sentence.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import soundfile

from dragoman.config import ConfigError, merge
from dragoman.inference.build import build_model
from dragoman.inference.system import System
from dragoman.nn.model import Model
from dragoman.parts import dump, kinds, part
from dragoman.recipe.layers import gather_settings, preset_names, read_preset
from dragoman.recipe.schema import make_recipe, spell_out
from dragoman.training.corpus import encode_corpus
from dragoman.training.events import Scores, Stepped
from dragoman.training.plan import Plan, plan
from dragoman.training.trainer import Trainer

WIDTH = 16  # the same for token vectors, encoder and decoder, as dot, scaled_dot and cosine need
SIZES = {"width": WIDTH, "embedding": WIDTH, "feed_forward": WIDTH, "layers": 1, "heads": 2}
SPECIAL: dict[str, dict[str, Any]] = {
    "rnn": {"width": WIDTH // 2},  # of each of two directions
    "pyramid": {"width": WIDTH // 2, "layers": 2},  # likewise; the second layer halves the length
    "conv": {"norm": "batch"},  # so that running statistics are saved and loaded too
}
TRAINING = {"threads": 1, "batch_tokens": 128, "max_updates": 3, "log_every": 1, "average": 1}
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"beam": 1},
    "sampled": {"sample": True, "samples": 2, "temperature": 2.0},
    "beam": {"beam": 3, "n_best": 2},
}
INPUTS = ["abc", "hgfed"]


def small(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a part, and of the parts inside it, with small sizes."""
    return {
        key: small(value) if isinstance(value, Mapping) else SIZES.get(key, value) if value is not None else None
        for key, value in settings.items()
    }


def settings_of(family: str, kind: str, chosen: Mapping[str, Any]) -> dict[str, Any]:
    defaults = dump(part(family, kind).Config())
    special = SPECIAL.get(kind, {}) if family == "encoder" else {}
    return merge(merge(small(defaults), special), {"kind": kind, **chosen})


# ---- what can be combined


@dataclass(frozen=True)
class Case:
    encoder: str
    decoder: str
    settings: tuple[tuple[str, Any], ...]  # of the decoder

    def __str__(self) -> str:
        return "-".join([self.encoder, self.decoder, *(f"{key}={value}" for key, value in self.settings)])

    @property
    def pairs(self) -> frozenset[tuple[tuple[str, Any], ...]]:
        """All pairs of choices that this case tests together."""
        choices = (("encoder", self.encoder), ("decoder", self.decoder), *self.settings)
        return frozenset(itertools.combinations(choices, 2))

    @property
    def recipe(self) -> dict[str, Any]:
        return {
            "source": {"embedding": WIDTH},
            "encoder": settings_of("encoder", self.encoder, {}),
            "decoder": settings_of("decoder", self.decoder, dict(self.settings)),
            "training": TRAINING,
        }


def switches(decoder: str) -> Iterator[tuple[tuple[str, Any], ...]]:
    """Yield every setting of the switches that a decoder has.

    Without attention, the switches of attention keep their first value.
    """
    fields = part("decoder", decoder).Config.model_fields
    values: dict[str, tuple[Any, ...]] = {}
    for key in ("context", "attention", "timing", "input_feeding", "selection"):
        if key in fields:
            options = kinds("attention") if key == "attention" else get_args(fields[key].annotation)
            values[key] = tuple(options) or (False, True)
    for chosen in itertools.product(*values.values()):
        named = dict(zip(values, chosen, strict=True))
        no_attention = named.get("context", "attention") != "attention"
        if no_attention and any(named[key] != values[key][0] for key in ("attention", "timing") if key in named):
            continue
        yield tuple(
            (key, value) for key, value in named.items() if not no_attention or key not in ("attention", "timing")
        )


CASES = [
    Case(encoder, decoder, chosen)
    for encoder in kinds("encoder")
    if part("encoder", encoder).reads == "sequence"  # pictures: tests/test_captions.py
    for decoder in kinds("decoder")
    for chosen in switches(decoder)
]


def refusal(case: Case) -> str | None:
    """Return the pattern of the error message that refuses this combination, or None where it is legal."""
    settings = dict(case.settings)
    context = settings.get("context")
    if settings.get("input_feeding") and (context != "attention" or settings["timing"] != "after"):
        return "input_feeding .* needs context = 'attention' and timing = 'after'"
    if settings.get("selection") == "hard" and context != "attention":
        return "selection = 'hard' .* needs context = 'attention'"
    if case.decoder == "monotone" and settings.get("attention") == "location":
        return "a monotone decoder sums over all alignments"
    if getattr(part("decoder", case.decoder), "reads_source", False):  # one network over source and target
        return None if case.encoder == "identity" else "needs encoder.kind = 'identity'"
    encoder = part("encoder", case.encoder)
    config = encoder.Config(**{key: value for key, value in case.recipe["encoder"].items() if key != "kind"})
    if context in ("initial", "every-step") and encoder(config, input_width=WIDTH).summary_shape is None:
        return "needs an encoder with a summary"
    return None


LEGAL = [case for case in CASES if refusal(case) is None]
ILLEGAL = [case for case in CASES if refusal(case) is not None]


def cover_pairs(cases: Sequence[Case]) -> list[Case]:
    """Choose cases that together test every pair of choices found in any of them.

    Greedy and deterministic: each step takes the first case that adds the most pairs not yet covered.
    """
    missing = {pair for case in cases for pair in case.pairs}
    chosen: list[Case] = []
    while missing:
        best = max(cases, key=lambda case: len(case.pairs & missing))  # max keeps the first of equals
        chosen.append(best)
        missing -= best.pairs
    return chosen


PAIRWISE = cover_pairs(LEGAL)
OTHERS = [pytest.param(case, marks=pytest.mark.exhaustive) for case in LEGAL if case not in PAIRWISE]


def test_the_chosen_cases_cover_every_legal_pair() -> None:
    choices = [(("encoder", case.encoder), ("decoder", case.decoder), *case.settings) for case in LEGAL]
    wanted = {pair for row in choices for pair in itertools.combinations(row, 2)}
    tested = {pair for case in PAIRWISE for pair in case.pairs}
    assert tested == wanted
    assert len(PAIRWISE) == len(set(PAIRWISE)) < len(LEGAL) / 3


# ---- one small corpus for all cases


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, pairs_file: Callable[..., Path]) -> Path:
    return pairs_file(tmp_path_factory.mktemp("pairs") / "pairs.tsv", 40)


@pytest.fixture(scope="module")
def planned(corpus: Path) -> Plan:
    return plan(corpus, settings={"source": {"embedding": WIDTH}})


def build(planned: Plan, settings: Mapping[str, Any]) -> System:
    """Build the system of a recipe for data already read and tokenizers already fitted."""
    recipe = make_recipe(settings)
    ready = planned.system
    return System(
        recipe, ready.modalities, ready.target, build_model(recipe, ready.modalities, ready.target), ready.lengths
    )


def assert_trains_and_loads(system: System, planned: Plan, folder: Path, inputs: Sequence[str] = INPUTS) -> None:
    def validate(model: Model) -> Scores:
        return Scores(1.0, 1.0, "made up", {})

    fresh = {name: tensor.clone() for name, tensor in system.model.state_dict().items()}
    encoded = encode_corpus(system, planned.data.train)
    events = list(Trainer(system.model, encoded, system.recipe.training, validate).run())
    losses = [event.loss for event in events if isinstance(event, Stepped)]
    assert len(losses) == 3 and all(0 < loss < 20 for loss in losses)
    changed = [name for name, tensor in system.model.state_dict().items() if not tensor.equal(fresh[name])]
    assert {name.split(".")[0] for name in changed} >= {"decoder"}

    def outputs(of: System) -> dict[str, list[Any]]:
        return {
            name: [
                [(output.tokens, output.score, output.log_probs) for output in prediction.outputs]
                for prediction in of.predict(inputs, max_length=5, trace=False, **search)
            ]
            for name, search in SEARCHES.items()
        }

    before = outputs(system)
    assert [len(before[name][0]) for name in SEARCHES] == [1, 2, 2]
    loaded = System.load(system.save(folder))
    assert loaded.recipe == system.recipe
    assert outputs(loaded) == before


@pytest.mark.parametrize("case", [*PAIRWISE, *OTHERS], ids=str)
def test_legal_combination(case: Case, planned: Plan, tmp_path: Path) -> None:
    assert_trains_and_loads(build(planned, case.recipe), planned, tmp_path)


@pytest.mark.parametrize("case", ILLEGAL, ids=str)
def test_every_illegal_combination_is_refused_with_a_sentence(case: Case, planned: Plan) -> None:
    expected = refusal(case)
    assert expected is not None
    with pytest.raises(ConfigError, match=expected):
        build(planned, case.recipe)


# ---- presets


def shrunk(settings: Any) -> Any:
    """Divide every width by sixteen, which keeps the ratios of the preset, and keep at most two layers."""
    if not isinstance(settings, Mapping):
        return settings
    result = {key: shrunk(value) for key, value in settings.items()}
    for key, value in result.items():
        if key in ("width", "embedding", "feed_forward"):
            result[key] = max(8, value // 16)
        elif key == "layers":
            result[key] = min(2, value)
    return result


def pictures(folder: Path) -> tuple[Path, list[str]]:
    """Write a table of small pictures with captions; return its path and two of the pictures."""
    from PIL import Image

    files = [folder / f"{number}.png" for number in range(30)]
    for number, file in enumerate(files):
        Image.new("RGB", (8 + number % 9, 16), (8 * number, 100, 50)).save(file)
    table = folder / "captions.tsv"
    table.write_text("".join(f"{file.name}\tpicture {number}\n" for number, file in enumerate(files)))
    return table, [str(file) for file in files[:2]]


def recordings(folder: Path) -> tuple[Path, list[str]]:
    """Write a table of short noises with a letter for each; return its path and two of the recordings."""
    chance, files = np.random.default_rng(1), [folder / f"{number}.wav" for number in range(40)]
    for number, file in enumerate(files):
        soundfile.write(file, chance.normal(0, 0.1, 800 + 20 * number), 8000)
    table = folder / "sounds.tsv"
    table.write_text("".join(f"{file.name}\t{'abcd'[number % 4]}\n" for number, file in enumerate(files)))
    return table, [str(file) for file in files[:2]]


@pytest.mark.parametrize("name", preset_names())
def test_every_preset(name: str, corpus: Path, tmp_path: Path) -> None:
    asked = spell_out(read_preset(name))
    data, inputs = corpus, INPUTS
    if asked.get("sources") == {}:  # a language model: text alone
        data = tmp_path / "text.txt"
        data.write_text(corpus.read_text(encoding="utf-8").replace("\t", " "), encoding="utf-8")
    elif getattr(make_recipe(asked).sources["source"].modality, "size", None):  # pictures
        data, inputs = pictures(tmp_path)
    elif hasattr(make_recipe(asked).sources["source"].modality, "hop"):  # recordings
        data, inputs = recordings(tmp_path)
    over = {key: value for key, value in shrunk(asked).items() if key not in ("preset", "reference", "training")}
    chosen = plan(data, preset=name, settings=merge(over, {"training": TRAINING}))
    assert chosen.system.recipe.preset == name and chosen.system.recipe.reference
    assert_trains_and_loads(chosen.system, chosen, tmp_path / "run", inputs)


def test_presets_are_whole() -> None:
    """Every preset is a valid recipe without further settings."""
    for name in preset_names():
        assert make_recipe(gather_settings(name)).preset == name


# ---- illegal settings beyond those switches


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        *(
            ({"encoder": {"width": 12}, "decoder": {"attention": {"kind": kind}}}, "as wide as the encoder's states")
            for kind in ("dot", "scaled_dot", "cosine")
        ),
        ({"decoder": {"kind": "conv", "selection": "hard"}}, "only the decoder of kind 'rnn' has it, not 'conv'"),
        ({"decoder": {"kind": "transformer", "selection": "hard"}}, "only the decoder of kind 'rnn' has it"),
        ({"decoder": {"kind": "transformer", "timing": "before"}}, "only the decoder of kind 'rnn' has it"),
        (
            {"decoder": {"kind": "conv", "attention": {"kind": "dot"}}},
            "only the decoder of kind 'monotone' or 'rnn' has it",
        ),
        ({"decoder": {"context": "initial", "bridge": "zero"}}, "a bridge other than 'zero'"),
        ({"decoder": {"bridge": "copy", "layers": 3}}, "use bridge = 'dense'"),
        ({"encoder": {"kind": "transformer", "width": 15, "heads": 4}}, "cannot be shared among heads = 4"),
        ({"decoder": {"kind": "transformer", "width": 15, "heads": 4}}, "cannot be shared among heads = 4"),
        ({"encoder": {"kind": "conv", "kernel": 4}}, "must be odd"),
        ({"share_embeddings": True}, "needs share_vocabulary = true"),
    ],
)
def test_what_cannot_work_is_refused_with_a_sentence(planned: Plan, settings: dict[str, Any], sentence: str) -> None:
    base = {"source": {"embedding": WIDTH}, "encoder": {"width": 8}, "decoder": {"width": WIDTH}}
    with pytest.raises(ConfigError, match=sentence):
        build(planned, merge(spell_out(base), spell_out(settings)))
