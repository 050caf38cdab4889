"""Views of a prediction: the numbers shown are the model's own, of the very hypothesis that is shown."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from dragoman.errors import UserError
from dragoman.studio import views
from dragoman.studio.looking import look
from dragoman.studio.matrices import matrix, weights
from dragoman.studio.records import PredictRequest
from dragoman.system import System
from dragoman.types import PRUNED


def asked(text: str = "abcd", **more: Any) -> PredictRequest:
    return PredictRequest(input=text, **more)


def test_a_block_of_weights_comes_back_as_it_was() -> None:
    block = np.random.default_rng(0).random((3, 4, 5))
    fine, coarse = matrix(block), matrix(block, most=10)
    assert (fine.encoding, coarse.encoding) == ("uint16", "uint8")
    np.testing.assert_allclose(weights(fine), block, atol=1e-5)
    np.testing.assert_allclose(weights(coarse), block, atol=2.1e-3)
    assert weights(matrix(block[0])).shape == (1, 4, 5)
    spread = matrix(np.full((48, 512, 512), 1 / 512, np.float32))
    assert spread.encoding == "uint16" and len(spread.data) < 34_000_000
    np.testing.assert_allclose(weights(spread)[0, 0], 1 / 512, rtol=0.01)
    assert weights(matrix(np.array([[-0.1, 0.0, 1.0, 1.2]])))[0, 0].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("which", ["recurrent", "heads"])
def test_a_prediction_tells_what_the_system_tells(which: str, request: pytest.FixtureRequest) -> None:
    system: System = request.getfixturevalue(which)
    made, _ = views.predict(system, "abcd", asked(n_best=3))
    known = system.predict(["abcd"], n_best=3)[0]
    assert [one.text for one in made.outputs] == [one.text for one in known.outputs]
    assert [axis.labels for axis in made.axes] == [list(known.labels)]
    for output, other in zip(made.outputs, known.outputs, strict=True):
        assert [token.text for token in output.tokens] == list(other.tokens)
        np.testing.assert_allclose([token.log_prob for token in output.tokens], other.log_probs, atol=1e-4)
        assert output.score == other.score
        for token in output.tokens:
            best = [one.log_prob for one in token.alternatives]
            assert best == sorted(best, reverse=True)
            assert 0 <= token.entropy <= math.log2(system.target.size) + 1e-4
            if token.rank <= len(best):
                np.testing.assert_allclose(best[token.rank - 1], token.log_prob, atol=1e-5)
                assert token.id in [one.id for one in token.alternatives]


@pytest.mark.parametrize("which", ["recurrent", "heads"])
def test_attention_shown_is_that_of_the_returned_hypothesis(which: str, request: pytest.FixtureRequest) -> None:
    system: System = request.getfixturevalue(which)
    made, found = views.predict(system, "abcdeb", asked("abcdeb", beam=4, n_best=4))
    differ = 0
    for output, hypothesis in zip(made.outputs, found.result.hypotheses, strict=True):
        assert output.attention is not None and hypothesis.attention is not None
        np.testing.assert_allclose(weights(output.attention)[0], hypothesis.attention.mean(1), atol=1e-4)
        tokens = [token.id for token in output.tokens]
        assert tokens == list(hypothesis.tokens)
        every = views.attention(system, "abcdeb", tokens, "cross")
        assert every.maps is not None
        np.testing.assert_allclose(weights(every.maps), hypothesis.attention.transpose(1, 0, 2), atol=1e-4)
        assert every.layers * every.heads == every.maps.maps == system.model.decoder.maps
        assert (every.rows, every.columns) == ([token.text for token in output.tokens], made.axes[0].labels)
        first = found.result.hypotheses[0].attention
        assert first is not None
        differ += hypothesis.attention.shape != first.shape or not np.allclose(hypothesis.attention, first, atol=1e-3)
    assert differ  # had all the same attention, showing the wrong one would go unnoticed


def test_self_attention_is_told_layer_by_layer(heads: System, recurrent: System) -> None:
    tokens = look(heads, "abcd", asked()).result.best.tokens
    known = heads.predict(["abcd"], maps=True)[0]
    own = views.attention(heads, "abcd", tokens, "encoder")
    back = views.attention(heads, "abcd", tokens, "decoder")
    assert (own.layers, own.heads, back.layers, back.heads) == (2, 2, 3, 2)
    assert own.maps is not None and back.maps is not None
    assert known.self_attention is not None and known.outputs[0].self_attention is not None
    size = len(own.rows)
    np.testing.assert_allclose(weights(own.maps), known.self_attention.reshape(4, size, size), atol=1e-4)
    size = len(tokens)
    np.testing.assert_allclose(weights(back.maps), known.outputs[0].self_attention.reshape(6, size, size), atol=1e-4)
    assert back.columns[0] == "<s>"
    with pytest.raises(UserError, match="no self-attention in its encoder"):
        views.attention(recurrent, "abcd", tokens, "encoder")


def test_forcing_an_alternative_goes_on_from_there(recurrent: System) -> None:
    made, _ = views.predict(recurrent, "abcd", asked())
    tokens = made.outputs[0].tokens
    other = next(one for one in tokens[1].alternatives if one.id > 3 and one.id != tokens[1].id)
    prefix = [tokens[0].id, other.id]
    again, found = views.predict(recurrent, "abcd", asked(prefix_tokens=prefix))
    assert [token.id for token in again.outputs[0].tokens[:2]] == prefix
    assert [token.forced for token in again.outputs[0].tokens[:3]] == [True, True, False]
    np.testing.assert_allclose(again.outputs[0].tokens[1].log_prob, other.log_prob, atol=1e-5)
    shown = views.tree(found, asked(prefix_tokens=prefix))
    assert shown.forced == 2 and [len(step) for step in shown.steps[:2]] == [1, 1]
    by_text, _ = views.predict(recurrent, "abcd", asked(prefix=recurrent.target.decode(prefix)))
    assert by_text.outputs[0].text == again.outputs[0].text


def test_a_banned_word_is_not_written(recurrent: System) -> None:
    plain, _ = views.predict(recurrent, "abcd", asked())
    text = plain.outputs[0].text
    without, _ = views.predict(recurrent, "abcd", asked(forbidden=[text[0]], n_best=3))
    assert all(text[0] not in output.text for output in without.outputs)
    assert len(text) > 1
    pair = text[:2]
    without, _ = views.predict(recurrent, "abcd", asked(forbidden=[pair], n_best=3))
    assert all(pair not in output.text for output in without.outputs)


@pytest.mark.parametrize("beam", [1, 3])
def test_the_tree_is_the_trace(recurrent: System, beam: int) -> None:
    request = asked(beam=beam, n_best=beam)
    found = look(recurrent, "abcd", request)
    shown = views.tree(found, request)
    steps = found.result.trace.steps
    assert len(shown.steps) == len(steps)
    every = {node.id: node for step in shown.steps for node in step}
    assert sorted(every) == list(range(len(every)))
    for nodes, frontier in zip(shown.steps, steps, strict=True):
        assert [node.token for node in nodes] == frontier.token.tolist()
        np.testing.assert_allclose([node.total for node in nodes], frontier.total)
        taken = min(node.total for node in nodes if node.fate != "pruned")
        for node, fate in zip(nodes, frontier.fate, strict=True):
            assert (node.fate == "pruned") == (fate == PRUNED)
            assert (node.margin is not None) == (fate == PRUNED)
            if node.margin is not None:
                assert node.margin == pytest.approx(taken - node.total) and node.margin >= 0
            before = 0.0 if node.parent is None else every[node.parent].total
            assert before + node.log_prob == pytest.approx(node.total, abs=1e-5)
            if node.parent is not None:
                assert every[node.parent].fate == "kept"
    for number, output in enumerate(found.result.hypotheses):
        path = [node.token for step in shown.steps for node in step if number in node.outputs]
        assert path == list(output.tokens)
    assert shown.outputs == [output.text for output in found.prediction.outputs]


def test_where_the_reference_was_lost(recurrent: System) -> None:
    best = recurrent("abcd")
    made, _ = views.predict(recurrent, "abcd", asked(reference=best))
    assert made.reference is not None and made.reference.verdict == "found" and made.reference.lost_at is None
    request = asked(reference="hhhhhh", beam=2)
    found = look(recurrent, "abcd", request)
    shown = views.tree(found, request)
    assert shown.reference is not None and shown.reference.verdict == "model error"
    lost = shown.reference.lost_at
    assert lost is not None and "left the beam" in shown.reference.sentence
    marked = [[node for node in step if node.reference] for step in shown.steps]
    assert all(len(nodes) == 1 and nodes[0].fate == "kept" for nodes in marked[:lost])
    assert all(node.fate == "pruned" for node in marked[lost]) and not any(marked[lost + 1 :])
    assert shown.reference.margin is not None and shown.reference.margin >= 0
    if marked[lost]:
        assert marked[lost][0].margin == pytest.approx(shown.reference.margin, abs=1e-4)


def test_a_search_error_is_told_from_a_model_error(recurrent: System) -> None:
    """What a wide beam finds and greedy search does not is a search error of the greedy search."""
    for text in ("abcd", "hgfe", "aabbcc", "dcbahg", "ghab", "fedcba", "ahbgcf", "ccddee"):
        greedy, wide = recurrent.predict([text], beam=1)[0], recurrent.predict([text], beam=40)[0]
        if wide.score > greedy.score + 1e-3:
            made, _ = views.predict(recurrent, text, asked(text, beam=1, reference=wide.text))
            assert made.reference is not None and made.reference.verdict == "search error"
            assert made.reference.score == pytest.approx(wide.score, abs=1e-3)
            return
    pytest.fail("greedy search found the best output of every input: give inputs where it does not")


def test_mistakes_are_told_in_a_sentence(recurrent: System) -> None:
    for request, words in (
        (asked(""), "empty input"),
        (asked(prefix="a", prefix_tokens=[4]), "not both"),
        (asked(prefix_tokens=[10_000]), "no token 10000"),
        (asked(beam=2, n_best=3), "n_best = 3"),
    ):
        with pytest.raises(UserError, match=words):
            views.predict(recurrent, request.input, request)
    with pytest.raises(UserError, match="vocabulary ends"):
        views.attention(recurrent, "ab", [99_999], "cross")


@pytest.mark.parametrize(
    "text", ["</script><b>x</b>", "שלום ab مرحبا", "👩‍👩‍👧 a🏳️‍🌈", "ab " * 1666, "\u202eab\u2028cd\x00"]
)
def test_any_text_is_carried_as_it_is(recurrent: System, text: str) -> None:
    made, _ = views.predict(recurrent, text, asked(text, max_length=20))
    again = type(made).model_validate_json(made.model_dump_json())
    assert again == made
    assert again.input["source"].strip() == " ".join(text.split("\n")).strip()
    assert set(made.unknown) <= {"source"}
