"""Several sources as one memory: real positions first, padding invisible, rows apart, every parameter reached."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from law_cases import WIDTH, close, make_decoder, make_encoder, rows_of

from dragoman.nn.blocks.joined_sources import JoinedSources
from dragoman.parts import part
from dragoman.types import Memory, Padded

LENGTHS = {"story": [7, 3, 1, 5], "question": [2, 4, 4, 1], "hint": [1, 1, 3, 2]}
ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "rnn": ("rnn", {"width": 6}),
    "narrow": ("rnn", {"width": 4}),
    "deep": ("rnn", {"width": 5, "layers": 2, "cell": "gru"}),
    "conv": ("conv", {"width": 10, "layers": 2}),
    "identity": ("identity", {}),
}
JOINT = {
    "joint rnn": ("rnn", {"width": 5}),
    "joint conv": ("conv", {"width": 6, "layers": 2}),
    "joint transformer": ("transformer", {"width": 8, "heads": 2}),
}
CASES = [
    ("rnn", "rnn"),
    ("rnn", "narrow", "joint rnn"),
    ("rnn", "deep", "joint conv"),
    ("rnn", "conv", "joint transformer"),
    ("rnn", "narrow", "rnn"),
    ("rnn", "deep"),
    ("rnn", "conv"),
    ("conv", "identity", "narrow"),
    ("identity", "identity"),
]


def make(kinds: tuple[str, ...]) -> tuple[dict[str, Any], JoinedSources]:
    """Encoders and what joins them; a kind that begins with "joint" is the encoder of all of them."""
    own = [kind for kind in kinds if kind in ENCODERS]
    encoders = {name: make_encoder(ENCODERS[kind]) for name, kind in zip(LENGTHS, own, strict=False)}
    torch.manual_seed(4)
    if own == list(kinds):
        return encoders, JoinedSources(encoders).eval()
    kind, settings = JOINT[kinds[-1]]
    family = part("encoder", kind)
    return encoders, JoinedSources(encoders, lambda width: family(family.Config(**settings), input_width=width)).eval()


def sources(names: Any, padding: int = 0, filler: float = 0.0) -> dict[str, Padded]:
    found = {}
    for seed, name in enumerate(names):
        lengths = torch.tensor(LENGTHS[name])
        torch.manual_seed(seed)
        data = torch.randn(len(lengths), int(lengths.max()), WIDTH)
        data = torch.cat([data, torch.full((len(lengths), padding, WIDTH), filler)], 1)
        mask = torch.arange(data.shape[1]) < lengths[:, None]
        found[name] = Padded(data.masked_fill(~mask[..., None], filler), mask)
    return found


def join(encoders: dict[str, Any], joined: JoinedSources, given: dict[str, Padded]) -> Memory:
    return joined({name: encoder(given[name]) for name, encoder in encoders.items()})


@pytest.mark.parametrize("kinds", CASES, ids="-".join)
def test_the_memory_is_every_source_behind_the_other(kinds: tuple[str, ...]) -> None:
    encoders, joined = make(kinds)
    memory = join(encoders, joined, sources(encoders))
    sizes = [sum(row) for row in zip(*(LENGTHS[name] for name in encoders), strict=True)]
    assert memory.mask.sum(1).tolist() == sizes and memory.states.shape[1] == max(sizes)
    assert all(memory.mask[row, :size].all() for row, size in enumerate(sizes)), "real positions come first"
    assert memory.states.shape[-1] == joined.width
    assert memory.summary is not None and tuple(memory.summary.shape[1:]) == joined.summary_shape
    if joined.joint is not None:
        return
    alone = encoders["question"](sources(encoders)["question"])
    wide = joined.widen["question"](alone.states) if "question" in joined.widen else alone.states
    for row, (first, second) in enumerate(zip(LENGTHS["story"], LENGTHS["question"], strict=True)):
        part = memory.states[row, first : first + second]
        assert close(part, wide[row, :second] + joined.marks["question"]), "a source's states, with its mark"


@pytest.mark.parametrize("kinds", CASES, ids="-".join)
def test_padding_is_invisible_and_rows_do_not_see_each_other(kinds: tuple[str, ...]) -> None:
    encoders, joined = make(kinds)
    memory = join(encoders, joined, sources(encoders))
    padded = join(encoders, joined, sources(encoders, padding=3, filler=9.0))
    assert torch.equal(memory.mask, padded.mask)
    for one, other in ((memory.states, padded.states), (memory.values, padded.values)):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert close(one[memory.mask], other[memory.mask])
    assert memory.summary is not None and padded.summary is not None
    assert close(memory.summary, padded.summary)
    for row in range(4):
        given = {
            name: Padded(one.data[[row], : LENGTHS[name][row]], one.mask[[row], : LENGTHS[name][row]])
            for name, one in sources(encoders).items()
        }
        alone = join(encoders, joined, given)
        assert close(alone.states[0], memory.states[row][memory.mask[row]])
        assert alone.summary is not None and close(alone.summary[0], memory.summary[row])


@pytest.mark.parametrize("kinds", CASES, ids="-".join)
def test_the_gradient_reaches_every_parameter(kinds: tuple[str, ...]) -> None:
    encoders, joined = make(kinds)
    memory = join(encoders, joined, sources(encoders))
    assert memory.summary is not None
    seen = memory.states * torch.linspace(0.5, 2.0, joined.width)  # a layer norm's squares alone would always sum alike
    values = seen if memory.values is None else seen + memory.values
    (values[memory.mask].square().sum() + memory.summary.square().sum()).backward()
    for module in (joined, *encoders.values()):
        for name, parameter in module.named_parameters():
            assert parameter.grad is not None and parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("context", ["initial", "every-step", "attention"])
def test_a_decoder_starts_from_every_source(context: str) -> None:
    """Whatever it takes of the memory, a change in any source changes what it says."""
    encoders, joined = make(("rnn", "deep", "identity"))
    given = sources(encoders)
    memory = join(encoders, joined, given)
    decoder = make_decoder(("rnn", {"context": context}), memory)
    tokens = torch.tensor([[1, 5, 6]] * 4)

    def said(memory: Memory) -> torch.Tensor:
        return decoder(tokens, decoder.start(memory, 4)).log_probs

    with torch.no_grad():
        before = said(memory)
        for name in encoders:
            other = given | {name: Padded(given[name].data + 1.0, given[name].mask)}
            assert not close(before, said(join(encoders, joined, other))), name
        rows = list(itertools.islice(itertools.cycle([2, 0]), 4))
        assert close(before[rows], said(rows_of(memory, rows)))


@pytest.mark.parametrize("kind", JOINT)
def test_a_joint_encoder_lets_every_source_see_the_others(kind: str) -> None:
    """Without one, the states of a source do not depend on the others; with one, they do."""
    for kinds, seen in ((("rnn", "rnn"), False), (("rnn", "rnn", kind), True)):
        encoders, joined = make(kinds)
        given = sources(encoders)
        other = given | {"question": Padded(given["question"].data.flip(2), given["question"].mask)}
        with torch.no_grad():
            before, after = join(encoders, joined, given), join(encoders, joined, other)
        at = LENGTHS["story"][0] - 1  # the story's last state: a question follows it
        assert close(before.states[0, at], after.states[0, at]) != seen
