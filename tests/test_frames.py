"""Sound and feature sequences as sources: what is read, normalised, changed at random, saved."""

from __future__ import annotations

import math
import wave
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from dragoman.data.media import MediaError
from dragoman.data.modality import Modality
from dragoman.inference.build import build_frontend
from dragoman.modalities._frames import FramesConfig
from dragoman.modalities.features import Features, at_speed, slopes, stacked
from dragoman.modalities.speech import Speech
from dragoman.nn.frontends.frames import FramesFrontend
from dragoman.process.generators import thread_generator
from dragoman.types import Padded


def write_sound(path: Path, seconds: float = 0.3, rate: int = 8000, pitch: float = 440.0, loud: float = 0.5) -> str:
    times = np.arange(round(seconds * rate)) / rate
    chance = np.random.default_rng(round(pitch))
    samples = loud * np.sin(2 * math.pi * pitch * times * (1 + times)) + 0.01 * chance.standard_normal(len(times))
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes((samples * 32000).astype("<i2").tobytes())
    return str(path)


def write_array(path: Path, frames: int, width: int = 3, seed: int = 0) -> str:
    np.save(path, np.random.default_rng(seed).normal(5.0, 3.0, (frames, width)).astype(np.float32))
    return str(path)


@pytest.fixture
def sounds(tmp_path: Path) -> list[str]:
    names = ["a_ann_1.wav", "b_ann_2.wav", "a_bob_1.wav", "b_bob_2.wav"]
    return [
        write_sound(tmp_path / name, 0.2 + 0.05 * index, pitch=300.0 + 100 * index, loud=0.9 if "ann" in name else 0.02)
        for index, name in enumerate(names)
    ]


@pytest.fixture
def arrays(tmp_path: Path) -> list[str]:
    return [write_array(tmp_path / f"{index}.npy", 4 + index, seed=index) for index in range(5)]


def same(first: Modality, second: Modality, raws: Sequence[str]) -> bool:
    return all(np.array_equal(first.array(raw), second.array(raw)) for raw in raws)


@pytest.mark.parametrize("stride", [1, 3, 8])
@pytest.mark.parametrize(
    "settings",
    [{}, {"rate": 16000}, {"normalise": "global", "mels": 20}, {"normalise": "speaker", "speaker": r"_(\w+)_"}],
    ids=str,
)
def test_laws_of_speech(sounds: list[str], settings: dict, stride: int, tmp_path: Path) -> None:
    speech = Speech.fit(Speech.Config(**settings), sounds, "voice")
    for raw in sounds:
        frames = speech.array(raw)
        assert frames.shape == (speech.length(raw), speech.mels) and frames.dtype == np.float32
        axis = speech.axis(speech.array(raw), stride)
        assert len(axis.labels) == -(-len(frames) // stride)
        assert axis.kind == "speech" and axis.seconds == pytest.approx(0.01 * stride)
    assert axis.labels[1] == f"{0.01 * stride:.2f} s"
    speech.save(tmp_path, "voice")
    assert same(speech, Speech.load(speech.config, tmp_path, "voice"), sounds)
    frontend = build_frontend(speech)
    batch = frontend(Padded.from_numpy(*speech.collate([speech.array(raw) for raw in sounds])))
    assert batch.data.shape == (4, max(map(speech.length, sounds)), frontend.width)
    assert batch.mask.sum(1).tolist() == [speech.length(raw) for raw in sounds]


def test_the_commonest_rate_is_taken_but_no_more_than_speech_needs(tmp_path: Path) -> None:
    slow = [write_sound(tmp_path / f"{index}.wav", 0.05) for index in range(2)]
    fast = [write_sound(tmp_path / f"fast{index}.wav", 0.05, rate=44100) for index in range(3)]
    assert Speech.fit(Speech.Config(), [*slow, fast[0]], "voice").rate == 8000
    assert Speech.fit(Speech.Config(), [*slow, *fast], "voice").rate == 16000
    assert [Speech(Speech.Config(), rate).mels for rate in (8000, 16000)] == [40, 80]


def test_one_sound_at_two_rates_looks_alike(tmp_path: Path) -> None:
    speech = Speech(Speech.Config(high=3500), 8000)
    slow, fast = (write_sound(tmp_path / f"{rate}.wav", 0.4, rate) for rate in (8000, 44100))
    loud = (first := speech.frames(slow)) > 0  # above the noise, which differs
    assert np.abs(first - speech.frames(fast))[loud].mean() < 0.1


@pytest.mark.parametrize("samples", [1, 40])
def test_a_click_is_a_sequence_too(tmp_path: Path, samples: int) -> None:
    raw = write_sound(tmp_path / "click.wav", samples / 8000)
    speech = Speech.fit(Speech.Config(), [raw], "voice")
    assert speech.array(raw).shape == (1, 40) and np.isfinite(speech.array(raw)).all()
    assert len(speech.axis(speech.array(raw), 8).labels) == 1


def test_whose_mean_is_taken_out(sounds: list[str], tmp_path: Path) -> None:
    alone = Speech.fit(Speech.Config(), sounds, "voice")
    overall = Speech.fit(Speech.Config(normalise="global"), sounds, "voice")
    spoken = Speech.fit(Speech.Config(normalise="speaker", speaker=r"_(\w+)_"), sounds, "voice")
    every = np.concatenate([overall.array(raw) for raw in sounds])
    assert np.abs(every.mean(0)).max() < 1e-3 and np.abs(every.std(0) - 1).max() < 0.05
    assert np.abs(alone.array(sounds[0]).mean(0)).max() < 1e-3
    ann = np.concatenate([spoken.array(raw) for raw in sounds[:2]])
    assert np.abs(ann.mean(0)).max() < 1e-3  # of the speaker, not of one recording
    assert np.abs(spoken.array(sounds[0]).mean(0)).max() > 0.1
    assert overall.array(sounds[0]).mean() > 0.1 > -0.1 > overall.array(sounds[2]).mean()  # ann is loud, bob is not
    stranger = write_sound(tmp_path / "a_eve_1.wav")
    assert np.array_equal(spoken.array(stranger), alone.array(stranger))
    assert "2 of them" in spoken.notes[1]
    folders = Speech(Speech.Config(normalise="speaker", speaker=r"/(\w+)/[^/]+$"), 8000)
    assert folders.speaker("voices/zoe/1_ann_2.wav") == "zoe"
    assert spoken.speaker("my_own_voices/1_ann_2.wav") == "ann"  # the file's name counts before its folder's


def test_speeds_change_length_and_pitch_and_follow_the_given_chance(sounds: list[str]) -> None:
    raw, config = sounds[3], Speech.Config(speeds=(0.9, 1.0, 1.1))
    speech = Speech.fit(config, sounds, "voice")
    lengths = {len(speech.augmented(raw, np.random.default_rng(seed))) for seed in range(20)}
    samples = round(0.35 * 8000)
    assert lengths == {-(-samples * 10 // 9 // 80), -(-samples // 80), -(-samples * 10 // 11 // 80)}
    first, again = (speech.augmented(raw, np.random.default_rng(3)) for _ in range(2))
    assert np.array_equal(first, again)
    plain = Speech.fit(Speech.Config(), sounds, "voice")
    assert speech.varies and not plain.varies
    assert np.array_equal(plain.augmented(raw, np.random.default_rng(3)), plain.array(raw))
    slow, fast = (speech.frames(raw, speed)[5].argmax() for speed in (0.9, 1.1))
    assert slow < fast


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"normalise": "speaker"}, "regular expression with a group"),
        ({"speaker": "("}, "no regular expression"),
        ({"speeds": []}, "speeds are numbers"),
        ({"rate": 10}, "between 1000"),
        ({"window": 0.001}, "at least as long as hop"),
    ],
)
def test_settings_that_cannot_be(settings: dict, word: str) -> None:
    with pytest.raises(ValidationError, match=word):
        Speech.Config(**settings)


@pytest.mark.parametrize("stride", [1, 2, 5])
@pytest.mark.parametrize(
    "settings",
    [{}, {"normalise": "none", "deltas": 1}, {"normalise": "utterance", "deltas": 2}, {"stack": 3, "stride": 2}],
    ids=str,
)
def test_laws_of_features(arrays: list[str], settings: dict, stride: int, tmp_path: Path) -> None:
    features = Features.fit(Features.Config(**settings), arrays, "sensor")
    for raw in arrays:
        assert features.array(raw).shape == (features.length(raw), build_frontend(features).width)
        assert len(features.axis(features.array(raw), stride).labels) == -(-features.length(raw) // stride)
    features.save(tmp_path, "sensor")
    assert same(features, Features.load(features.config, tmp_path, "sensor"), arrays)


def test_features_at_other_speeds_are_the_same_line_read_faster(arrays: list[str], tmp_path: Path) -> None:
    ramp = (np.linspace(0, 1, 41)[:, None] * [1.0, -3.0]).astype(np.float32)
    for speed, count in ((0.8, 51), (1.25, 33), (2.0, 20)):
        read = at_speed(ramp, speed)
        assert read.shape == (count, 2) and read.dtype == np.float32
        assert np.allclose(read, np.linspace(0, 1, count)[:, None] * [1.0, -3.0], atol=1e-6)
    assert np.array_equal(at_speed(ramp[:1], 2.0), ramp[:1])
    features = Features.fit(Features.Config(speeds=(0.5, 1.0, 2.0), deltas=1), arrays, "sensor")
    raw = write_array(tmp_path / "long.npy", 60)
    drawn = [features.augmented(raw, np.random.default_rng(seed)) for seed in range(20)]
    assert {len(one) for one in drawn} == {30, 60, 120}
    assert {one.shape[1] for one in drawn} == {build_frontend(features).width}
    assert np.array_equal(drawn[3], features.augmented(raw, np.random.default_rng(3)))
    plain = Features.fit(Features.Config(), arrays, "sensor")
    assert features.varies and not plain.varies
    assert np.array_equal(plain.augmented(raw, np.random.default_rng(3)), plain.array(raw))


def test_features_of_a_store(tmp_path: Path) -> None:
    store = write_array(tmp_path / "store.npy", 20)
    features = Features.fit(Features.Config(normalise="none"), [f"{store}#0:5", f"{store}#5:20"], "sensor")
    assert features.length(f"{store}#5:20") == 15
    assert np.array_equal(features.array(f"{store}#5:8"), np.load(store)[5:8])


def test_another_width_is_refused_with_both_numbers(arrays: list[str], tmp_path: Path) -> None:
    features = Features.fit(Features.Config(), arrays, "sensor")
    with pytest.raises(MediaError, match="4 features a frame, but the training data has 3"):
        features.array(write_array(tmp_path / "wide.npy", 5, width=4))


def test_slopes_of_a_line_are_its_slope_and_of_a_constant_nothing() -> None:
    line = np.arange(9.0)[:, None] * [2.0, 0.0]
    assert np.allclose(slopes(line)[2:-2], [2.0, 0.0])
    assert np.abs(slopes(np.ones((1, 2)))).sum() == 0


def test_stacking_joins_neighbours_and_repeats_the_last() -> None:
    frames = np.arange(5.0)[:, None]
    assert stacked(frames, 3, 2).tolist() == [[0, 1, 2], [2, 3, 4], [4, 4, 4]]
    assert stacked(frames, 1, 2).tolist() == [[0], [2], [4]]


def frontend(masks: FramesConfig) -> FramesFrontend:
    return FramesFrontend(**masks.frontend_options(10))


def hidden(masks: FramesConfig, seed: int = 0, rows: int = 200) -> tuple[torch.Tensor, torch.Tensor]:
    """(rows, S, D) what was hidden of rows of 1 to 40 frames, and their lengths."""
    lengths = torch.arange(rows) % 40 + 1
    source = Padded(torch.ones(rows, 40, 10), torch.arange(40) < lengths[:, None])
    with thread_generator(seed):
        return frontend(masks).train()(source).data == 0, lengths


def test_stripes_are_as_wide_as_said_at_most_and_inside_the_sequence() -> None:
    found, lengths = hidden(FramesConfig(time_masks=1, time_width=0.25))
    assert torch.equal(found.any(2), found.all(2))  # whole frames
    widths = found[:, :, 0].sum(1)
    assert (widths <= lengths // 4).all()
    assert {0, 3, 6, 9} <= set(widths.tolist())
    places = torch.arange(40)
    assert not (found[:, :, 0] & (places >= lengths[:, None])).any()
    joints = (found[:, 1:, 0] != found[:, :-1, 0]).sum(1)
    assert joints.max() <= 2  # in one piece
    stripes, _ = hidden(FramesConfig(feature_masks=1, feature_width=0.3))
    assert torch.equal(stripes.any(1), stripes.all(1)) and stripes[:, 0].sum(1).max() == 3


def test_stripes_are_for_training_alone_and_follow_chance() -> None:
    masks = FramesConfig(time_masks=2, feature_masks=2)
    assert torch.equal(hidden(masks, 3)[0], hidden(masks, 3)[0])
    assert not torch.equal(hidden(masks, 3)[0], hidden(masks, 4)[0])
    source = Padded(torch.ones(2, 5, 10), torch.ones(2, 5, dtype=torch.bool))
    assert frontend(masks).eval()(source) is source
    before = torch.get_rng_state()
    assert torch.equal(frontend(FramesConfig()).train()(source).data, source.data)
    assert torch.equal(before, torch.get_rng_state())  # without masks nothing is drawn
