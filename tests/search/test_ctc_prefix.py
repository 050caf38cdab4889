"""CTC as a decoder: normalised, equal to its definition, whatever the batch; and beside a decoder in a search."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from dragoman.search.combined import Combined
from dragoman.search.ctc_prefix import CTCPrefix, WithCTC
from dragoman.search.options import SearchConfig
from dragoman.search.paths import force, rescore
from dragoman.search.run import search
from dragoman.types import Memory, State

BLANK, UNK, BOS, EOS = range(4)
VOCABULARY = 7
TOKENS = range(EOS + 1, VOCABULARY)


def scorer(seed: int = 0) -> CTCPrefix:
    torch.manual_seed(seed)
    readout = nn.Linear(5, VOCABULARY)
    with torch.no_grad():
        readout.weight.mul_(3)
        readout.bias[[UNK, BOS]] = -40.0  # said by nobody
    return CTCPrefix(readout, blank=BLANK, bos=BOS, eos=EOS)


def memory_of(lengths: list[int], seed: int = 1, padding: int = 0) -> Memory:
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randn(length, 5, generator=generator) for length in lengths]
    states = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=99.0)
    states = torch.cat([states, torch.full((len(rows), padding, 5), 7.0)], 1)
    return Memory(states, torch.arange(states.shape[1]) < torch.tensor(lengths)[:, None])


def outputs_of(ctc: CTCPrefix, memory: Memory, row: int) -> dict[tuple[int, ...], float]:
    """The probability of every output, summed over all that the states can say."""
    length = int(memory.mask[row].sum())
    logits = ctc.readout(memory.states[row, :length]).detach().double()
    logits[:, EOS] = -torch.inf
    said = logits.softmax(-1)
    found: dict[tuple[int, ...], float] = {}
    for path in itertools.product([BLANK, *TOKENS], repeat=length):
        output = tuple(token for token, _ in itertools.groupby(path) if token != BLANK)
        found[output] = found.get(output, 0.0) + float(torch.stack([said[t, c] for t, c in enumerate(path)]).prod())
    return found


def after(ctc: CTCPrefix, memory: Memory, prefix: list[int]) -> Tensor:
    """(B, V) probabilities of what follows."""
    rows = len(memory.states)
    with torch.no_grad():
        tokens = torch.tensor([[BOS, *prefix]] * rows)
        return ctc(tokens, ctc.start(memory, rows)).log_probs[:, -1].exp()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 9), st.lists(st.sampled_from(list(TOKENS)), max_size=3))
def test_shares_of_the_outputs_that_begin_so(seed: int, prefix: list[int]) -> None:
    ctc, memory = scorer(seed), memory_of([4, 2, 1], seed)
    found = after(ctc, memory, prefix)
    for row in range(3):
        outputs = outputs_of(ctc, memory, row)
        begun = {output: p for output, p in outputs.items() if output[: len(prefix)] == tuple(prefix)}
        total = sum(begun.values())
        if not total:
            assert not found[row].any()
            continue
        assert found[row].sum().item() == pytest.approx(1, abs=1e-5)
        assert found[row, BLANK] == 0
        for token in TOKENS:
            share = sum(p for output, p in begun.items() if output[len(prefix) : len(prefix) + 1] == (token,))
            assert found[row, token].item() == pytest.approx(share / total, abs=1e-5)
        assert found[row, EOS].item() == pytest.approx(outputs.get(tuple(prefix), 0.0) / total, abs=1e-5)


def test_a_whole_output_has_the_probability_that_training_gives_it() -> None:
    ctc, memory = scorer(), memory_of([9, 6])
    targets = [[4, 5, 5, 6], [6, 6]]
    with torch.no_grad():
        found = force(ctc, memory, 2, [[*target, EOS] for target in targets], bos=BOS, eos=EOS)
        logits = ctc.readout(memory.states).double()
        logits[..., EOS] = -torch.inf
        losses = torch.nn.functional.ctc_loss(
            logits.log_softmax(-1).transpose(0, 1), torch.tensor([[4, 5, 5, 6], [6, 6, 0, 0]]),
            memory.mask.sum(1), torch.tensor([4, 2]), blank=BLANK, reduction="none",
        )  # fmt: skip
    assert [one.score for one in found] == pytest.approx((-losses).tolist(), abs=1e-4)


def test_one_call_or_many_one_row_or_many_padding_or_none() -> None:
    ctc, tokens = scorer(), torch.tensor([[BOS, 4, 4, 5], [BOS, 5, 6, 4], [BOS, 6, 6, 6]])
    memory = memory_of([8, 5, 3])
    with torch.no_grad():
        whole = ctc(tokens, ctc.start(memory, 3)).log_probs
        state, steps = ctc.start(memory_of([8, 5, 3], padding=4), 3), []
        for column in tokens.split(1, 1):
            step = ctc(column, state)
            state = step.state
            steps.append(step.log_probs)
        assert torch.allclose(torch.cat(steps, 1), whole, atol=1e-6)
        rows = torch.tensor([2, 0, 1])
        turned = ctc(tokens[rows], ctc.start(memory, 3).select(rows))
        assert torch.allclose(turned.log_probs, whole[rows], atol=1e-6)
        wide = ctc.start(memory, 3).spread(2)
        spread = ctc(tokens.repeat_interleave(2, 0), wide).log_probs
        assert torch.allclose(spread[::2], whole, atol=1e-6) and torch.allclose(spread[1::2], whole, atol=1e-6)


class Stubborn:
    """A decoder that wants one token for ever, whatever it hears."""

    def start(self, memory: Memory, sources: int) -> State:
        return State(sources, {}, {"nothing": torch.zeros(sources, 1)})

    def __call__(self, tokens: Tensor, state: State, need_attention: bool = False) -> Combined:
        logits = torch.zeros(*tokens.shape, VOCABULARY)
        logits[..., 4] = 1.0
        return Combined(logits.log_softmax(-1), state)


def test_a_search_heeds_both_and_reports_the_decoders_own() -> None:
    ctc, memory = scorer(4), memory_of([5, 4, 1], 4)
    config = SearchConfig(beam=40, normalize="none", stop="certain", forbidden=(BLANK, UNK, BOS))
    weight, own = 0.7, Stubborn()
    with torch.no_grad():
        joint = WithCTC(own, ctc, weight)
        found = search(joint, memory, 3, config, bos=BOS, eos=EOS, limits=[7] * 3)
        told = rescore(own, memory, found, bos=BOS, eos=EOS, config=config)
        alone = search(own, memory, 3, config, bos=BOS, eos=EOS, limits=[7] * 3)
    step = Stubborn()(torch.zeros(1, 1, dtype=torch.long), State(1)).log_probs[0, 0]
    for row in range(3):
        scores = {
            output: (1 - weight) * float(sum(step[token] for token in (*output, EOS))) + weight * math.log(p)
            for output, p in outputs_of(ctc, memory, row).items()
        }
        best = max(scores, key=lambda output: scores[output])
        assert found[row].best.tokens == (*best, EOS)
        assert found[row].best.score == pytest.approx(scores[best], abs=1e-4)
        assert told[row].best.score == found[row].best.score
        assert told[row].best.log_probs == pytest.approx([float(step[token]) for token in (*best, EOS)])
    assert any(one.best.tokens != other.best.tokens for one, other in zip(found, alone, strict=True))


def test_a_forced_prefix_that_the_states_cannot_have_said_leaves_the_choice_to_the_decoder() -> None:
    ctc, memory = scorer(), memory_of([2, 2])
    config = SearchConfig(beam=3, normalize="none", forbidden=(BLANK, UNK, BOS))
    prefix = [(4, 5, 6), (5, 5)]
    with torch.no_grad():
        joint = search(WithCTC(Stubborn(), ctc, 0.5), memory, 2, config, bos=BOS, eos=EOS, limits=[6, 6], prefix=prefix)
        alone = search(Stubborn(), memory, 2, config, bos=BOS, eos=EOS, limits=[6, 6], prefix=prefix)
    assert [one.best.tokens for one in joint] == [one.best.tokens for one in alone]
