"""Sources whose states are sentences: sums of their words, weighed by place (Sukhbaatar et al. 2015, section 4.1)."""

from __future__ import annotations

from pathlib import Path

import torch

import dragoman
from dragoman.data import tokenizers
from dragoman.data.tokenizers import TokenizerConfig
from dragoman.drawing.attention import draw
from dragoman.inference.build import build_frontend
from dragoman.modalities.text import Text
from dragoman.types import Axis, Padded

STORIES = [
    "Mary went home. John left! Where to",
    "Is it so?",
    "",
    "One. Two. Three. Four. Five. Six.",
    "no mark at all",
]


def text(kind: str = "words", states: str = "sentences") -> Text:
    config = Text.Config.model_validate({"tokenizer": {"kind": kind}, "embedding": 6, "states": states})
    return Text(config, tokenizers.fit(TokenizerConfig.model_validate({"kind": kind}), STORIES, "source"))


def axis(story: str, kind: str = "words", states: str = "sentences") -> Axis:
    modality = text(kind, states)
    return modality.axis(modality.array(story))


def padded(modality: Text, stories: list[str]) -> Padded:
    return Padded.from_numpy(*modality.collate([modality.array(story) for story in stories]))


def by_hand(words: torch.Tensor) -> torch.Tensor:
    """Return the sum (D,) of words (J, D), straight from the formula."""
    count, width = words.shape
    total = torch.zeros(width)
    for j in range(1, count + 1):
        for k in range(1, width + 1):
            total[k - 1] += words[j - 1, k - 1] * ((1 - j / count) - (k / width) * (1 - 2 * j / count))
    return total


def test_a_state_is_the_weighed_sum_of_its_sentence() -> None:
    modality = text()
    frontend = build_frontend(modality).eval()
    found = frontend(padded(modality, STORIES))
    for row, story in enumerate(STORIES):
        tokens = torch.from_numpy(modality.array(story))
        labels = modality.axis(modality.array(story)).labels
        assert int(found.mask[row].sum()) == len(labels)
        begin = 0
        for at, label in enumerate(labels):
            end = begin + len(label.split(" "))
            expected = by_hand(frontend.token_embedding(tokens[begin:end]).detach())
            torch.testing.assert_close(found.data[row, at].detach(), expected, atol=1e-5, rtol=1e-5)
            begin = end
        assert begin == len(tokens)
        assert not found.data[row, len(labels) :].any()


def test_labels_are_sentences_and_the_end() -> None:
    assert axis(STORIES[0]).labels == ("Mary went home .", "John left !", "Where to </s>")
    assert axis(STORIES[3]).labels[-1] == "</s>"
    assert len(axis("").labels) == 1
    assert len(axis(STORIES[0], "characters").labels) == 3
    assert len(axis("a b", states="tokens").labels) == 3


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    modality = text()
    frontend = build_frontend(modality).eval()
    together = frontend(padded(modality, STORIES))
    for row, story in enumerate(STORIES):
        alone = frontend(padded(modality, [story])).data[0]
        torch.testing.assert_close(together.data[row, : len(alone)], alone)


def test_the_order_of_words_counts() -> None:
    modality = text()
    frontend = build_frontend(modality).eval()
    one, other = (frontend(padded(modality, [t])).data[0, 0] for t in ("Mary left John", "John left Mary"))
    assert not torch.allclose(one, other)


def test_a_model_of_sentences_trains_loads_and_says_where_it_looked(tmp_path: Path) -> None:
    lines = [f"{a} went home. {b} left.\t{b}" for a in "ABCD" for b in "EFGH"]
    data = tmp_path / "stories.tsv"
    data.write_text("\n".join(lines) + "\n")
    settings = {"source": {"tokenizer": {"kind": "words"}, "states": "sentences"}, "training": {"max_updates": 3}}
    dragoman.train(data, out=tmp_path / "run", dev=data, settings=settings)
    system = dragoman.load(tmp_path / "run")
    story = "A went home. F left."
    best = system.predict([story])[0]
    assert best.axes["source"].labels == ("A went home .", "F left .", "</s>")
    attention = best.outputs[0].attention
    assert attention is not None
    assert attention.shape[-1] == 3
    assert system.predict([story, "A left."])[0].outputs[0].text == best.outputs[0].text


def test_the_drawing_of_several_sources_is_titled_with_their_texts(tmp_path: Path) -> None:
    data = tmp_path / "qa.tsv"
    rows = [f"Who left?\t{a} went home. {b} left.\t{b}" for a in "ABCD" for b in "EFGH"]
    data.write_text("\n".join(["question\tstory\tanswer", *rows]) + "\n")
    settings = {
        "data": {"source": ["question", "story"], "target": "answer"},
        "source": {"kind": "text", "states": "sentences", "tokenizer": {"kind": "words"}},
        "training": {"max_updates": 2},
    }
    system = dragoman.train(data, out=tmp_path / "run", dev=data, settings=settings)
    _, drawn = draw([system.view_attention(system.predict([{"question": "Who left?", "story": "A left. " * 30}])[0])])
    assert isinstance(drawn, str)
    assert ">Who left? · A left. A left." in drawn
    assert "{" not in drawn
    assert ">A left .</text>" in drawn
