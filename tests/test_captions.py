"""Pictures through the whole: a tiny system learns to name what was drawn; published weights; drawing over one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from safetensors.torch import save_file

from dragoman.config import ConfigError
from dragoman.data.examples import SOURCE, Example
from dragoman.errors import UserError
from dragoman.evaluation.evaluate import evaluate
from dragoman.inference.system import System
from dragoman.nn.blocks.resnet import ResNet
from dragoman.training.plan import plan
from dragoman.training.run import train

SIDE = 24
COLOURS = {"red": (220, 40, 40), "green": (40, 160, 60), "blue": (50, 80, 220)}
SHAPES = ("circle", "square")
TINY: dict[str, Any] = {
    "source": {"kind": "image", "shift": 0.0, "scale": 0.0, "brightness": 0.0, "contrast": 0.0},
    "encoder": {"kind": "grid", "width": 32, "channels": [16, 32, 64], "stride": 4, "dropout": 0.0},
    "decoder": {"kind": "rnn", "width": 128, "embedding": 64, "timing": "before", "context_gate": True, "dropout": 0.0},
    "target": {"tokenizer": {"kind": "words"}},
    "training": {
        "threads": 1, "loaders": 0, "batch_tokens": 216, "max_epochs": None, "max_updates": 160, "validate_every": 160,
        "average": 1, "label_smoothing": 0.0,
        "optim": {"learning_rate": 3e-3, "schedule": "cosine", "warmup": 10},
    },
}  # fmt: skip


def draw(folder: Path, rows: int, seed: int) -> list[tuple[str, str]]:
    """One shape anywhere on grey: (file, colour and shape)."""
    chance = random.Random(seed)
    made = []
    for number in range(rows):
        colour, shape, reach = chance.choice(list(COLOURS)), chance.choice(SHAPES), chance.uniform(5, 8)
        x, y = (chance.uniform(reach + 1, SIDE - reach - 1) for _ in range(2))
        picture = Image.new("RGB", (SIDE, SIDE), (chance.randint(90, 230),) * 3)
        paint = ImageDraw.Draw(picture)
        box = (x - reach, y - reach, x + reach, y + reach)
        (paint.ellipse if shape == "circle" else paint.rectangle)(box, fill=COLOURS[colour])
        picture.save(folder / f"{seed}-{number}.png")
        made.append((str(folder / f"{seed}-{number}.png"), f"{colour} {shape}"))
    return made


def write(path: Path, rows: list[tuple[str, str]]) -> Path:
    path.write_text("".join(f"{file}\t{words}\n" for file, words in rows))
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> System:
    folder = tmp_path_factory.mktemp("drawn")
    rows = draw(folder, 300, 1)
    pairs, dev = write(folder / "train.tsv", rows), write(folder / "dev.tsv", rows[:20])
    return train(pairs, dev, out=folder / "run", settings=TINY)


@pytest.fixture(scope="module")
def unseen(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    return draw(tmp_path_factory.mktemp("unseen"), 60, 2)


def test_colour_and_shape_are_learnt(trained: System, unseen: list[tuple[str, str]]) -> None:
    examples = [Example({SOURCE: file}, words, line, "unseen") for line, (file, words) in enumerate(unseen, 1)]
    assert evaluate(trained, examples, beam=1).scores["exact"].value >= 95


def test_a_loaded_run_says_the_same(trained: System, unseen: list[tuple[str, str]]) -> None:
    assert trained.folder is not None
    files = [file for file, _ in unseen[:8]]
    loaded = System.load(trained.folder)
    for one, other in zip(trained.predict(files), loaded.predict(files), strict=True):
        assert one.text == other.text and one.log_probs == other.log_probs
        assert one.attention is not None and other.attention is not None
        assert one.attention.shape[-1] == len(one.labels) == 36
        assert np.array_equal(one.attention, other.attention)


def test_every_word_has_a_box_in_the_picture(trained: System, unseen: list[tuple[str, str]]) -> None:
    for prediction in trained.predict([file for file, _ in unseen[:20]], alignments=True):
        boxes = prediction.boxes
        assert [box.text for box in boxes.units] == prediction.text.split() and boxes.size == (SIDE, SIDE)
        assert all(0 <= box.left < box.right <= SIDE and 0 <= box.top < box.bottom <= SIDE for box in boxes.units)
        assert prediction.attention is not None
        for box, weights in zip(boxes.units, prediction.attention[:, 0], strict=False):  # a word is a token
            regions = weights.reshape(6, 6)[box.top // 4 : -(-box.bottom // 4), box.left // 4 : -(-box.right // 4)]
            assert np.isclose(box.weight, regions.sum(), atol=1e-5) and weights.max() in regions


DECODERS: dict[str, dict[str, Any]] = {
    "hard, before": {"kind": "rnn", "selection": "hard", "timing": "before"},
    "hard, after": {"kind": "rnn", "selection": "hard", "timing": "after"},
    "after, fed": {"kind": "rnn", "timing": "after", "input_feeding": True},
    "conv": {"kind": "conv", "layers": 2},
    "transformer": {"kind": "transformer", "layers": 1, "heads": 2, "feed_forward": 16},
}


@pytest.mark.parametrize("decoder", DECODERS)
def test_every_kind_of_decoder_looks_at_pictures(tmp_path: Path, decoder: str) -> None:
    rows = draw(tmp_path, 30, 3)
    pairs = write(tmp_path / "train.tsv", rows)
    settings = {key: value for key, value in TINY.items() if key not in ("decoder", "training")}
    width = {"width": 16} | ({"embedding": 16} if DECODERS[decoder]["kind"] != "transformer" else {})
    training = {"threads": 1, "max_updates": 3, "batch_tokens": 64, "label_smoothing": 0.0}
    made = train(
        pairs, pairs, out=tmp_path / "run",
        settings=settings | {"decoder": DECODERS[decoder] | width, "training": training},
    )  # fmt: skip
    loaded = System.load(tmp_path / "run")
    files = [file for file, _ in rows[:4]]
    for options in ({"beam": 1}, {"beam": 3}, {"sample": True, "seed": 5}):
        for one, other in zip(made.predict(files, **options), loaded.predict(files, **options), strict=True):
            assert one.tokens == other.tokens and one.attention is not None and other.attention is not None
            assert one.attention.shape[-1] == len(one.labels) and np.allclose(one.attention.sum(-1), 1, atol=1e-4)
            assert np.allclose(one.attention, other.attention, atol=1e-5)


def test_pictures_are_given_as_files_lists_and_tables(
    trained: System, unseen: list[tuple[str, str]], call: Any, tmp_path: Path
) -> None:
    some = unseen[:5]
    expected = [one.text for one in trained.predict([file for file, _ in some])]
    folder = Path(some[0][0]).parent
    names = [Path(file).name for file, _ in some]
    given = {
        "table.tsv": "".join(f"{name}\t{words}\n" for name, (_, words) in zip(names, some, strict=True)),
        "headed.tsv": "image\tcaption\n" + "".join(f"{name}\tx\n" for name in names),
        "list.txt": "".join(f"{name}\n" for name in names),
    }
    for name, text in given.items():
        (folder / name).write_text(text)
        answer = call("predict", trained.folder, folder / name)
        assert answer.code == 0 and answer.lines == expected, name
    (tmp_path / "photo").write_bytes(Path(some[0][0]).read_bytes())  # known by what is in it
    assert call("predict", trained.folder, tmp_path / "photo", some[1][0]).lines == expected[:2]
    (tmp_path / "none.txt").write_text("nowhere.png\n")
    missing = call("predict", trained.folder, tmp_path / "none.txt")
    assert missing.code == 1 and missing.lines == [""] and "nowhere.png: no such file" in missing.err


def test_inspect_says_which_picture_cannot_be_read(
    trained: System, unseen: list[tuple[str, str]], call: Any, tmp_path: Path
) -> None:
    for inputs in (["gone.png", unseen[0][0]], [unseen[0][0], "gone.png"]):
        answer = call("inspect", trained.folder, *inputs, "-o", tmp_path / "sheet.png")
        assert answer.code == 2 and "gone.png: no such file" in answer.err
    assert not (tmp_path / "sheet.png").exists()


def test_inspect_draws_over_the_picture(
    trained: System, unseen: list[tuple[str, str]], call: Any, tmp_path: Path
) -> None:
    out = tmp_path / "sheet.png"
    answer = call("inspect", trained.folder, unseen[0][0], "-o", out)
    assert answer.code == 0 and answer.lines == [unseen[0][1]]
    with Image.open(out) as sheet:
        assert sheet.format == "PNG" and sheet.width > 4 * 160  # the picture, two words, the end
    wrong = call("inspect", trained.folder, unseen[0][0], "-o", tmp_path / "sheet.svg")
    assert wrong.code == 2 and ".png file" in wrong.err
    with pytest.raises(UserError, match=r"^x\.svg: .* is a \.png file; name it x\.png$"):
        trained.predict(unseen[0][0]).plot("x.svg")


def test_several_pictures_are_drawn_below_each_other(
    trained: System, unseen: list[tuple[str, str]], call: Any, tmp_path: Path
) -> None:
    sheets = []
    for index in range(2):
        call("inspect", trained.folder, unseen[index][0], "-o", tmp_path / f"{index}.png")
        sheets.append(Image.open(tmp_path / f"{index}.png"))
    answer = call("inspect", trained.folder, unseen[0][0], unseen[1][0], "-o", tmp_path / "both.png")
    assert answer.code == 0 and len(answer.lines) == 2
    both = Image.open(tmp_path / "both.png")
    assert both.size == (max(one.width for one in sheets), sum(one.height for one in sheets))
    top = 0
    for one in sheets:
        found = np.asarray(both.crop((0, top, one.width, top + one.height))).astype(int)
        assert np.abs(found - np.asarray(one)).max() <= 1  # weights of two pictures at once may round otherwise
        top += one.height


# ---- published weights


def published(kind: str, path: Path, stride: int = 32) -> dict[str, torch.Tensor]:
    torch.manual_seed(5)
    weights = {name: torch.rand_like(tensor.float()) for name, tensor in ResNet(kind, 3, stride).state_dict().items()}
    weights |= {"fc.weight": torch.rand(10, 4), "fc.bias": torch.rand(10)}
    save_file(weights, path)
    return weights


@pytest.mark.parametrize(
    ("kind", "count", "names"),
    [
        ("resnet18", 11_176_512, ("conv1.weight", "bn1.running_var", "layer4.1.conv2.weight")),
        (
            "resnet50",
            23_508_032,
            ("layer1.0.downsample.0.weight", "layer1.0.downsample.1.bias", "layer3.5.conv3.weight"),
        ),
    ],
)
def test_names_and_sizes_are_the_published_ones(kind: str, count: int, names: tuple[str, ...]) -> None:
    """Without the last layer, of 1000 classes: 11,689,512 and 25,557,032 parameters with it."""
    network = ResNet(kind, 3, 32)
    assert sum(parameter.numel() for parameter in network.parameters()) == count
    assert set(names) <= set(network.state_dict())


@pytest.mark.parametrize("grey", [False, True])
def test_a_new_run_starts_from_published_weights(grey: bool, tmp_path: Path) -> None:
    weights = published("resnet18", tmp_path / "resnet18.safetensors")
    pairs = write(tmp_path / "pairs.tsv", draw(tmp_path, 24, 3))
    over = {
        "source": {"kind": "image", "grey": grey, "normalise": "imagenet"},
        "encoder": {
            "kind": "grid", "network": "resnet18", "stride": 8, "width": 32,
            "weights": str(tmp_path / "resnet18.safetensors"),
        },
        "decoder": {"width": 16, "embedding": 16},
        "training": {"freeze": ["encoders.source.network"], "max_updates": 2, "threads": 1, "loaders": 0, "average": 1},
    }  # fmt: skip
    planned = plan(pairs, settings=over)
    network = planned.system.model.encoders["source"].network
    taken = network.state_dict()
    assert torch.equal(taken["layer2.1.bn2.running_var"], weights["layer2.1.bn2.running_var"])
    assert torch.allclose(taken["conv1.weight"].sum(1), weights["conv1.weight"].sum(1))
    assert any("resnet18.safetensors" in line for line in planned.reasons)
    system = train(pairs, out=tmp_path / "run", settings=over)
    after = system.model.encoders["source"].network.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in taken.items())  # frozen, its statistics too
    (tmp_path / "resnet18.safetensors").unlink()
    loaded = System.load(tmp_path / "run")
    same = loaded.model.encoders["source"].network.state_dict()
    assert all(torch.equal(same[name], tensor) for name, tensor in after.items())


@pytest.mark.parametrize(
    ("kind", "network", "sentence"),
    [("resnet18", "resnet50", "does not fit encoder.network"), ("resnet18", "compact", "weights are published for")],
)
def test_weights_that_do_not_fit_are_refused(kind: str, network: str, sentence: str, tmp_path: Path) -> None:
    published(kind, tmp_path / "some.safetensors", stride=8)
    pairs = write(tmp_path / "pairs.tsv", draw(tmp_path, 20, 4))
    encoder = {"kind": "grid", "network": network, "weights": str(tmp_path / "some.safetensors")}
    with pytest.raises(ConfigError, match=sentence):
        plan(pairs, settings={"source": {"kind": "image"}, "encoder": encoder})
