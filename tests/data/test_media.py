"""Pictures, recordings and feature sequences: what is read is right, what is broken is named, nothing else is lost."""

from __future__ import annotations

import json
import os
import pickle
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from dragoman.cli.main import app
from dragoman.data import media
from dragoman.data.examples import overlap
from dragoman.data.media import MediaError, examine, probe, recognise, suffix_kind
from dragoman.data.options import DataConfig
from dragoman.data.reading.read import read
from dragoman.data.splits import split
from dragoman.errors import UserError
from dragoman.modalities import _array_reader as features
from dragoman.modalities import _audio_reader as audio
from dragoman.modalities import _image_reader as images

Image = pytest.importorskip("PIL.Image")
ImageOps = pytest.importorskip("PIL.ImageOps")
soundfile = pytest.importorskip("soundfile")

RNG = np.random.default_rng(5)
PIXELS = RNG.integers(0, 256, (20, 30, 3), dtype=np.uint8)
WAVE = (RNG.random(1000) - 0.5).astype(np.float32)
MATRIX = RNG.random((7, 3)).astype(np.float32)
READ: dict[str, Callable[[str], object]] = {"image": images.read, "speech": audio.read, "features": features.read}


def write(path: Path, what: object = None) -> Path:
    """A good file of the kind that its suffix says."""
    kind = suffix_kind(str(path))
    if kind == "image":
        lossless = {"lossless": True} if path.suffix == ".webp" else {}
        Image.fromarray(PIXELS if what is None else what).save(path, **lossless)
    elif kind == "speech":
        soundfile.write(path, WAVE if what is None else what, 8000)
    else:
        np.save(path, MATRIX if what is None else what)  # type: ignore[arg-type]
    return path


def cut(path: Path, share: float) -> None:
    whole = write(path).read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])


def png(width: int, height: int, more: bytes = b"") -> bytes:
    """A PNG with this size in its header, by hand."""

    def chunk(name: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(more)) + chunk(b"IEND", b"")


def wave(rate: int, samples: bytes, promised: int | None = None) -> bytes:
    """A 16-bit WAV by hand."""
    form = b"fmt " + struct.pack("<IHHIIHH", 16, 1, 1, rate, rate * 2, 2, 16)
    data = b"data" + struct.pack("<I", len(samples) if promised is None else promised) + samples
    return b"RIFF" + struct.pack("<I", 4 + len(form) + len(data)) + b"WAVE" + form + data


def flipped(path: Path) -> None:
    data = bytearray(write(path).read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(bytes(data))


def zipped(path: Path) -> None:
    with path.open("wb") as stream:
        np.savez(stream, MATRIX)


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def no_permission(path: Path) -> None:
    write(path).chmod(0)
    if os.access(path, os.R_OK):
        path.unlink()
        pytest.skip("this user may read everything")


def webp_header(width: int, height: int) -> bytes:
    size = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body = b"WEBPVP8X" + struct.pack("<I", 10) + bytes(4) + size
    return b"RIFF" + struct.pack("<I", len(body)) + body


def flac_claiming(path: Path, frames: int) -> None:
    """A good FLAC whose header claims more samples."""
    data = bytearray(write(path).read_bytes())
    packed = int.from_bytes(data[18:26], "big")  # the last 36 bits are the number of samples
    data[18:26] = (packed >> 36 << 36 | frames).to_bytes(8, "big")
    path.write_bytes(bytes(data))


def flac_damaged(path: Path) -> None:
    """Whole, but for some bytes in its middle."""
    data = bytearray(write(path, np.tile(WAVE, 40)).read_bytes())
    middle = len(data) // 2
    data[middle : middle + 64] = bytes(64)
    path.write_bytes(bytes(data))


class Dangerous:
    """Runs code where somebody unpickles it."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.abort, ()


# name of the file, how it is made, the audit's category, and what the reason says
Make = Callable[[Path], object]
BROKEN: list[tuple[str, Make, str, str]] = [
    ("gone.png", lambda p: None, "missing_file", "no such file"),
    ("nul\ufffd.png/x.png", lambda p: None, "missing_file", "no such file"),
    ("folder.png", lambda p: p.mkdir(), "unreadable_file", "a folder"),
    ("loop.png", loop, "unreadable_file", "cannot be opened"),
    ("pipe.wav", lambda p: os.mkfifo(p), "unreadable_file", "a pipe or a device"),
    ("secret.png", no_permission, "unreadable_file", "no permission"),
    ("x" * 300 + ".png", lambda p: None, "unreadable_file", "name too long"),
    ("http://example.org/cat.png", lambda p: None, "remote_file", "an address on a network"),
    ("empty.png", lambda p: p.touch(), "unreadable_file", "empty"),
    ("empty.wav", lambda p: p.touch(), "unreadable_file", "empty"),
    ("empty.npy", lambda p: p.touch(), "unreadable_file", "empty"),
    ("text.png", lambda p: p.write_text("hello"), "unreadable_file", "not a PNG, JPEG or WebP"),
    ("sound.png", lambda p: p.write_bytes(wave(8000, bytes(100))), "unreadable_file", "not a PNG, JPEG or WebP"),
    ("gif.jpg", lambda p: Image.fromarray(PIXELS).save(p, "GIF"), "unreadable_file", "not a PNG, JPEG or WebP"),
    ("cut.png", lambda p: cut(p, 0.5), "truncated_file", "truncated"),
    ("end.png", lambda p: cut(p, 0.999), "truncated_file", "truncated"),
    ("head.png", lambda p: p.write_bytes(png(9, 9)[:20]), "truncated_file", "truncated"),
    ("cut.jpg", lambda p: cut(p, 0.8), "truncated_file", "truncated"),
    ("head.jpeg", lambda p: cut(p, 0.1), "truncated_file", "truncated"),
    ("cut.webp", lambda p: cut(p, 0.5), "truncated_file", "truncated"),
    ("flipped.png", flipped, "unreadable_file", "checksum"),
    ("none.png", lambda p: p.write_bytes(png(0, 0)), "unreadable_file", "0 × 0 pixels"),
    ("flat.png", lambda p: p.write_bytes(png(0, 5)), "unreadable_file", "0 × 5 pixels"),
    ("bomb.png", lambda p: p.write_bytes(png(40_000, 40_000)), "too_large", "40,000 × 40,000 pixels"),
    ("bomb.webp", lambda p: p.write_bytes(webp_header(1 << 24, 1 << 24)), "too_large", "over the limit"),
    ("text.wav", lambda p: p.write_text("hello, here is no sound"), "unreadable_file", "not a WAV, FLAC or Ogg"),
    ("picture.wav", lambda p: p.write_bytes(png(3, 3)), "unreadable_file", "not a WAV, FLAC or Ogg"),
    ("cut.wav", lambda p: cut(p, 0.5), "truncated_file", "489 of 1,000 samples"),
    ("cut.flac", lambda p: cut(p, 0.5), "truncated_file", "truncated"),
    ("long.flac", lambda p: flac_claiming(p, 5000), "truncated_file", "truncated"),
    ("damaged.flac", flac_damaged, "truncated_file", "damaged"),
    ("bomb.flac", lambda p: flac_claiming(p, (1 << 36) - 1), "too_large", "over the limit"),
    ("cut.ogg", lambda p: cut(p, 0.5), "truncated_file", "truncated"),
    ("none.wav", lambda p: p.write_bytes(wave(8000, b"")), "unreadable_file", "0 seconds"),
    ("none.flac", lambda p: write(p, WAVE[:0]), "unreadable_file", ""),
    ("slow.wav", lambda p: p.write_bytes(wave(7, bytes(100))), "unreadable_file", "7 samples a second"),
    ("nan.wav", lambda p: soundfile.write(p, WAVE * np.nan, 8000, "FLOAT"), "not_finite", "not finite"),
    ("text.npy", lambda p: p.write_text("1 2 3\n4 5 6\n"), "unreadable_file", "not a .npy file"),
    ("zip.npy", zipped, "unreadable_file", "not a .npy file"),
    ("pickle.npy", lambda p: p.write_bytes(pickle.dumps(Dangerous())), "unreadable_file", "not a .npy file"),
    ("objects.npy", lambda p: np.save(p, np.array([Dangerous()], object)), "unreadable_file", "Python objects"),
    ("words.npy", lambda p: np.save(p, np.array(["a", "b"])), "wrong_shape", "not numbers"),
    ("complex.npy", lambda p: np.save(p, MATRIX + 1j), "wrong_shape", "not numbers"),
    ("number.npy", lambda p: np.save(p, np.float32(1)), "wrong_shape", "a single number"),
    ("cube.npy", lambda p: np.save(p, np.zeros((2, 3, 4))), "wrong_shape", "3 axes"),
    ("rowless.npy", lambda p: np.save(p, np.zeros((0, 3))), "wrong_shape", "0 rows"),
    ("columnless.npy", lambda p: np.save(p, np.zeros((3, 0))), "wrong_shape", "0 columns"),
    ("wide.npy", lambda p: np.save(p, np.zeros((7, 4))), "wrong_shape", "4 columns, but most have 3"),
    ("cut.npy", lambda p: cut(p, 0.9), "truncated_file", "shorter than its header"),
    ("nan.npy", lambda p: np.save(p, np.array([[1, 2, 3], [4, np.nan, 6]])), "not_finite", "row 1, column 1 (nan)"),
    ("inf.npy", lambda p: np.save(p, np.array([[1, 2, -np.inf]])), "not_finite", "row 0, column 2 (-inf)"),
    ("huge.npy", lambda p: np.save(p, np.array([[1e300, 2, 3]])), "not_finite", "(inf)"),
    ("store.npy#5:9", lambda p: write(p.with_name("store.npy")), "wrong_place", "which has 7 rows"),
    ("store.npy#3:3", lambda p: write(p.with_name("store.npy")), "wrong_place", "no rows"),
    ("store.npy#-3:5", lambda p: write(p.with_name("store.npy")), "wrong_place", "write #FIRST:LAST"),
    ("store.npy#2", lambda p: write(p.with_name("store.npy")), "wrong_place", "write #FIRST:LAST"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "make", "category", "says"), BROKEN, ids=[case[0][:20] for case in BROKEN])
def test_a_broken_file_is_named_and_the_other_rows_are_kept(
    tmp_path: Path, name: str, make: Make, category: str, says: str
) -> None:
    make(tmp_path / name)
    kind = suffix_kind(name)
    assert kind is not None
    good = {"image": "good.png", "speech": "good.wav", "features": "good.npy"}[kind]
    write(tmp_path / good)
    table = tmp_path / "pairs.tsv"
    table.write_text(f"{good}\tone\n{name}\ttwo\n{good}\tthree\n", encoding="utf-8")
    corpus = read(table)
    assert corpus.kinds == {"source": kind}
    assert [(one.sources["source"], one.target) for one in corpus.examples] == [
        (str(tmp_path / good), "one"),
        (str(tmp_path / good), "three"),
    ]
    assert (corpus.audit.rows, corpus.audit.dropped, corpus.audit.count(category)) == (3, 1, 1)
    (place,) = corpus.audit.broken
    assert str(place).startswith(f"{table}:2: {name}: ")
    assert says.casefold() in place.reason.removeprefix(name).casefold()
    assert str(place) in corpus.audit.report()


def test_many_broken_files_are_all_named(tmp_path: Path) -> None:
    lines = ["good.png\tx"]
    write(tmp_path / "good.png")
    for name, make, *_ in BROKEN:
        if suffix_kind(name) == "image" and make is not no_permission:
            make(tmp_path / name)
            lines += [f"{name}\tx", "good.png\ty"]
    (tmp_path / "p.tsv").write_text("\n".join(lines), encoding="utf-8")
    corpus = read(tmp_path / "p.tsv")
    wrong = [number for number, line in enumerate(lines, 1) if not line.startswith("good")]
    assert [place.line for place in corpus.audit.broken] == wrong
    assert len(corpus.examples) == len(lines) - len(wrong)
    assert [place["line"] for place in corpus.audit.to_json()["broken_files"]] == wrong


# What is read


@pytest.mark.parametrize("suffix", [".png", ".jpg", ".webp"])
@pytest.mark.parametrize("turn", range(1, 9))
def test_pictures_are_turned_as_exif_says(tmp_path: Path, suffix: str, turn: int) -> None:
    path = tmp_path / f"a{suffix}"
    exif = Image.Exif()
    exif[0x0112] = turn
    Image.fromarray(PIXELS).save(path, exif=exif)
    with Image.open(path) as opened:
        expected = np.asarray(ImageOps.exif_transpose(opened).convert("RGB"))
    pixels = images.read(str(path))
    np.testing.assert_array_equal(pixels, expected)
    assert pixels.flags.c_contiguous and pixels.flags.writeable
    assert (examine(str(path), "image").height, probe(str(path), "image").width) == pixels.shape[:2]


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "I;16"])
def test_pictures_of_every_mode_are_rgb(tmp_path: Path, mode: str) -> None:
    path = tmp_path / ("a.jpg" if mode == "CMYK" else "a.png")
    if mode == "I;16":
        Image.fromarray(np.full((4, 5), 0x80FF, np.uint16)).save(path)
    elif mode == "PA":  # a palette with a transparent colour
        Image.fromarray(PIXELS).convert("P").save(path, transparency=0)
    else:
        grey = Image.new("RGB", (5, 4), (128, 128, 128))
        (grey.quantize(4) if mode == "P" else grey.convert(mode, dither=0)).save(path)
    pixels = images.read(str(path))
    assert pixels.dtype == np.uint8 and pixels.shape[2] == 3
    if mode not in ("1", "PA"):
        assert abs(pixels.astype(int) - 128).max() <= 2


def test_transparent_is_white_and_the_first_frame_counts(tmp_path: Path) -> None:
    Image.new("RGBA", (2, 3), (200, 0, 0, 0)).save(tmp_path / "a.png")
    assert (images.read(str(tmp_path / "a.png")) == 255).all()
    frames = [Image.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    frames[0].save(tmp_path / "b.webp", save_all=True, append_images=frames[1:], lossless=True)
    assert (images.read(str(tmp_path / "b.webp")) == [255, 0, 0]).all()


def test_a_picture_is_read_by_what_is_in_it(tmp_path: Path) -> None:
    write(tmp_path / "a.png").rename(tmp_path / "a.jpg")
    np.testing.assert_array_equal(images.read(str(tmp_path / "a.jpg")), PIXELS)


@pytest.mark.parametrize("suffix", [".wav", ".flac", ".ogg"])
def test_recordings(tmp_path: Path, suffix: str) -> None:
    path = str(write(tmp_path / f"a{suffix}", np.stack([WAVE, -WAVE / 2], axis=1)))
    samples, rate = audio.read(path)
    assert rate == 8000 and samples.shape == (1000,) and samples.dtype == np.float32
    if suffix != ".ogg":
        np.testing.assert_allclose(samples, WAVE / 4, atol=1e-4)
    found = examine(path, "speech")
    assert found == probe(path, "speech")
    assert (found.frames, found.rate, found.channels, found.seconds) == (1000, 8000, 2, 0.125)


def test_a_wave_file_of_unknown_length_is_read_to_its_end(tmp_path: Path) -> None:
    """As a program writes it into a pipe: it cannot go back to put the length into the header."""
    (tmp_path / "a.wav").write_bytes(wave(8000, bytes(100), promised=0xFFFFFFFF))
    assert examine(str(tmp_path / "a.wav"), "speech").frames == 50


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f8", "int16", "uint8", "bool"])
def test_features_of_every_type(tmp_path: Path, dtype: str) -> None:
    values = (np.arange(21).reshape(7, 3) % 2).astype(dtype)
    for order in "CF":
        np.save(tmp_path / "a.npy", np.asarray(values, order=order))  # type: ignore[call-overload]
        found = features.read(str(tmp_path / "a.npy"))
        assert found.dtype == np.float32 and found.flags.c_contiguous and found.flags.writeable
        np.testing.assert_array_equal(found, values.astype(np.float32))


def test_one_axis_is_one_column(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(5))
    assert features.read(str(tmp_path / "a.npy")).tolist() == [[0], [1], [2], [3], [4]]


def test_stores(tmp_path: Path) -> None:
    store = tmp_path / "s.npy"
    np.save(store, MATRIX)
    np.testing.assert_array_equal(features.read(f"{store}#2:5"), MATRIX[2:5])
    np.testing.assert_array_equal(features.read(f"{store}#0:7"), MATRIX)
    assert probe(f"{store}#6:7", "features").frames == 1
    np.save(tmp_path / "cube.npy", np.stack([MATRIX, 2 * MATRIX]))
    np.testing.assert_array_equal(features.read(f"{tmp_path / 'cube.npy'}#1"), 2 * MATRIX)
    with pytest.raises(MediaError, match="2 entries"):
        features.read(f"{tmp_path / 'cube.npy'}#2")
    np.save(store, np.concatenate([MATRIX, -MATRIX]))  # written anew: not what was mapped before
    np.testing.assert_array_equal(features.read(f"{store}#7:14"), -MATRIX)


def test_not_finite_is_found_only_where_it_is(tmp_path: Path) -> None:
    values = MATRIX.copy()
    values[4, 2] = np.nan
    np.save(tmp_path / "s.npy", values)
    (tmp_path / "p.tsv").write_text("s.npy#0:4\ta\ns.npy#3:6\tb\ns.npy#5:7\tc\n")
    corpus = read(tmp_path / "p.tsv")
    assert [one.target for one in corpus.examples] == ["a", "c"]
    assert "row 1, column 2" in corpus.audit.broken[0].reason


# Readers raise MediaError and nothing else


def tame(path: Path, kind: str) -> None:
    """A file is read, and then as its header says; or refused."""
    try:
        found = examine(str(path), kind)
    except MediaError as error:
        assert str(error) and error.category
        found = None
    try:
        whole = READ[kind](str(path))
    except MediaError as error:
        assert str(error) and error.category
        return
    if found is not None and kind == "image":
        assert isinstance(whole, np.ndarray) and whole.shape == (found.height, found.width, 3)
    if found is not None and kind == "features":
        assert isinstance(whole, np.ndarray) and whole.shape == (found.frames, found.features)


NAMES = ("a.png", "a.jpg", "a.webp", "a.wav", "a.flac", "a.ogg", "a.npy")
MARKS = (
    b"",
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff\xe0",
    b"RIFF\x30\0\0\0WEBPVP8 ",
    b"RIFF\x30\0\0\0WAVEfmt ",
    b"fLaC",
    b"OggS",
    b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (",
)
NO_FIXTURE_CHECK = (HealthCheck.function_scoped_fixture,)


@settings(max_examples=150, deadline=None, suppress_health_check=NO_FIXTURE_CHECK)
@given(kind=st.sampled_from(list(media.file_kinds())), mark=st.sampled_from(MARKS), rest=st.binary(max_size=200))
def test_any_bytes(tmp_path: Path, kind: str, mark: bytes, rest: bytes) -> None:
    (tmp_path / "a").write_bytes(mark + rest)
    tame(tmp_path / "a", kind)


@pytest.mark.filterwarnings("ignore")  # of the libraries, about what they met
@settings(max_examples=250, deadline=None, suppress_health_check=NO_FIXTURE_CHECK)
@given(data=st.data(), name=st.sampled_from(NAMES))
def test_good_files_cut_or_damaged(tmp_path: Path, data: st.DataObject, name: str) -> None:
    path = write(tmp_path / name)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(0, 3), "flips")):
        # near the beginning more often: there the headers are
        at = data.draw(st.one_of(st.integers(0, min(150, len(content) - 1)), st.integers(0, len(content) - 1)), "at")
        content[at] ^= 1 << data.draw(st.integers(0, 7), "bit")
    end = data.draw(st.one_of(st.just(len(content)), st.integers(0, len(content))), "end")
    path.write_bytes(content[:end])
    tame(path, str(suffix_kind(name)))


@settings(max_examples=60, deadline=None, suppress_health_check=NO_FIXTURE_CHECK)
@given(name=st.text(max_size=30), place=st.sampled_from(["", ".npy#1:2", ".npy#x", ".npy#9999999999999999"]))
def test_any_name(tmp_path: Path, name: str, place: str) -> None:
    for kind in media.file_kinds():
        try:
            examine(media.resolve(name + place, str(tmp_path)), kind)
        except MediaError as error:
            assert str(error)
        else:
            pytest.fail("there is no file in this folder")


@pytest.mark.parametrize(("library", "name", "extra"), [("PIL", "a.png", "images"), ("soundfile", "a.wav", "audio")])
def test_a_missing_library_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, name: str, extra: str
) -> None:
    write(tmp_path / name)
    (tmp_path / "p.tsv").write_text(f"{name}\tx\n")
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(UserError, match=rf"pip install 'dragoman\[{extra}\]'"):
        read(tmp_path / "p.tsv")


# Columns, folders, kinds


def test_kinds_are_recognised() -> None:
    assert [suffix_kind(name) for name in ("A.PNG", "b/c.jpeg", "x.flac", "s.npy#3:4", "s.NPY#3", "notes.txt")] == [
        "image", "image", "speech", "features", "features", None,
    ]  # fmt: skip
    assert recognise(["a.png", "b.jpg", "none"]) == "image"
    assert recognise(["a.png", "b.wav"]) is None
    assert recognise(["see cat.png", "and", "more"]) is None
    assert recognise([]) is None


@pytest.mark.parametrize(
    ("table", "target"),
    [
        ("a.png\tx\nb.png\ty\n", ["x", "y"]),
        ("x\ta.png\ny\tb.png\n", ["x", "y"]),
        ("file\tname\na.png\tx\nb.png\ty\n", ["x", "y"]),
        ("image\tsplit\tcaption\na.png\ttrain\tx\nb.png\ttest\ty\n", ["x", "y"]),
        ("split\ttext\tpath\ntrain\tx\ta.png\ntest\ty\tb.png\n", ["x", "y"]),
        ('{"image": "a.png", "text": "x"}\n{"image": "b.png", "text": "y"}\n', ["x", "y"]),
    ],
)
def test_the_column_of_paths_is_the_source(tmp_path: Path, table: str, target: list[str]) -> None:
    for name in ("a.png", "b.png"):
        write(tmp_path / name)
    file = tmp_path / ("p.jsonl" if table.startswith("{") else "p.tsv")
    file.write_text(table)
    corpus = read(file)
    assert [one.target for one in corpus.examples] == target
    assert [one.sources["source"] for one in corpus.examples] == [str(tmp_path / "a.png"), str(tmp_path / "b.png")]
    assert corpus.audit.dropped == 0


def test_a_picture_beside_a_question_must_be_said(tmp_path: Path) -> None:
    write(tmp_path / "a.png")
    (tmp_path / "p.tsv").write_text("image\tquestion\tanswer\na.png\twhat?\tcat\n")
    with pytest.raises(UserError, match=r"p\.tsv:1: 3 columns .* not clear"):
        read(tmp_path / "p.tsv")
    config = DataConfig(source={"picture": "image", "question": "question"})
    corpus = read(tmp_path / "p.tsv", config)
    assert corpus.kinds == {"picture": "image", "question": "text"}
    assert dict(corpus.examples[0].sources) == {"picture": str(tmp_path / "a.png"), "question": "what?"}
    assert list(corpus.audit.statistics) == ["question", "target"] and list(corpus.audit.media) == ["picture"]


def test_the_kind_can_be_said(tmp_path: Path) -> None:
    write(tmp_path / "a.png").rename(tmp_path / "a.picture")
    (tmp_path / "p.tsv").write_text("a.picture\tx\n")
    assert read(tmp_path / "p.tsv").kinds == {"source": "text"}
    assert read(tmp_path / "p.tsv", kinds={"source": "image"}).examples[0].sources == {
        "source": str(tmp_path / "a.picture")
    }
    (tmp_path / "q.tsv").write_text("cat.png\tthe name of a picture\n")
    assert read(tmp_path / "q.tsv", kinds={"source": "text"}).examples[0].sources == {"source": "cat.png"}


def test_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lists").mkdir()
    (tmp_path / "my pictures").mkdir()
    write(tmp_path / "my pictures" / "Füße und mehr.png")
    path = str(tmp_path / "my pictures" / "Füße und mehr.png")
    table = tmp_path / "lists" / "p.tsv"
    table.write_text(f"../my pictures/Füße und mehr.png\tx\n{path}\ty\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path / "lists")
    for file in (str(table), "p.tsv", "../lists/p.tsv"):
        assert [one.sources["source"] for one in read(file).examples] == [path, path]
    table.write_text("Füße und mehr.png\tx\n", encoding="utf-8")
    config = DataConfig(root="../my pictures")
    assert read("p.tsv", config).examples[0].sources == {"source": path}
    with pytest.raises(UserError, match=r"p\.tsv:1: Füße und mehr\.png: no such file; .*--root"):
        read("p.tsv")
    with pytest.raises(UserError, match="nowhere: no such folder"):
        read("p.tsv", DataConfig(root="nowhere"))


def test_rows_are_split_by_what_is_written_and_compared_by_file(tmp_path: Path) -> None:
    sides = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        for number in range(12):
            write(tmp_path / folder / f"{number}.png")
        table = tmp_path / folder / "p.tsv"
        table.write_text("".join(f"{number}.png\tx\n" for number in range(12)))
        sides.append([[one.line for one in side] for side in split(read(table).examples, 0.3, 0.3)])
    assert sides[0] == sides[1]  # the folder may be moved: what is held out stays
    first, second = (read(tmp_path / folder / "p.tsv").examples for folder in ("one", "two"))
    assert overlap(first, second).rows == 0  # same names, other files
    (tmp_path / "two" / "q.tsv").write_text("../one/3.png\tx\n2.png\tx\n")
    assert overlap(first, read(tmp_path / "two" / "q.tsv").examples).rows == 1


def test_duplicates_are_found_under_two_names(tmp_path: Path) -> None:
    write(tmp_path / "a.png")
    (tmp_path / "p.tsv").write_text("a.png\tx\n./a.png\tx\na.png\ty\n")
    audit = read(tmp_path / "p.tsv").audit
    assert (audit.count("duplicate"), audit.count("several_targets")) == (1, 1)
    assert audit.media["source"].files == 1


def test_a_file_in_many_rows_is_looked_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    look = images.examine
    monkeypatch.setattr(images, "examine", lambda path: looked.append(path) or look(path))
    for number in range(40):
        write(tmp_path / f"{number}.png")
    (tmp_path / "p.tsv").write_text("".join(f"{number % 40}.png\t{number}\n" for number in range(400)))
    corpus = read(tmp_path / "p.tsv")
    assert [one.target for one in corpus.examples] == [str(number) for number in range(400)]
    assert len(looked) == 40


def test_sizes_and_durations_are_told(tmp_path: Path) -> None:
    for number, length in enumerate((1000, 2000, 2001, 8000)):
        write(tmp_path / f"{number}.wav", np.zeros(length))
    (tmp_path / "p.tsv").write_text("".join(f"{number}.wav\tx\n" for number in range(4)))
    audit = read(tmp_path / "p.tsv").audit
    seconds = audit.media["source"].measures["seconds"]
    assert (seconds.minimum, seconds.maximum) == (0.125, 1.0)
    assert seconds.histogram == {0.125: 1, 0.25: 1, 0.5: 1, 1.0: 1}
    assert audit.media["source"].counts == {"rate": {8000: 4}, "channels": {1: 4}}
    plain = audit.to_json()["media"]["source"]
    assert plain["kind"] == "speech" and plain["files"] == 4
    report = audit.report()
    assert "Recordings (source): 4 distinct, 1.6 seconds together" in report
    assert "samples a second,   all 8,000" in report and "█" in report


def test_check_tells_of_files(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    write(tmp_path / "pictures" / "a.png")
    (tmp_path / "p.tsv").write_text("image\tcaption\na.png\tx\ncut.png\ty\n")
    cut(tmp_path / "pictures" / "cut.png", 0.5)
    asked = ["check", str(tmp_path / "p.tsv"), "--root", str(tmp_path / "pictures")]
    told = CliRunner().invoke(app, asked).output
    assert "1 of 2 rows used" in told and f"{tmp_path}/p.tsv:3: cut.png: truncated" in told
    assert "width in pixels,    all 30" in told
    plain = json.loads(CliRunner().invoke(app, [*asked, "--json"]).output)["train"]
    assert plain["media"]["source"]["measures"]["height in pixels"]["histogram"] == {"32.0": 1}
    assert [place["line"] for place in plain["broken_files"]] == [3]
    as_text = CliRunner().invoke(app, [*asked, "--kind", "text"]).output
    assert "2 of 2 rows used" in as_text
    wrong = CliRunner().invoke(app, [*asked, "--kind", "picture"])
    assert isinstance(wrong.exception, UserError) and "--kind picture" in str(wrong.exception)
