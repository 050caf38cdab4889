"""Views of a prediction show the model's own numbers for the hypothesis that is shown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dragoman.data.vocabulary import BOS, EOS, PAD, UNK
from dragoman.errors import UserError
from dragoman.evaluation.compare import compare_systems
from dragoman.evaluation.metrics.bootstrap import SMALLEST_P
from dragoman.evaluation.run_data import read_files
from dragoman.inference.predictions import Raw
from dragoman.inference.system import System
from dragoman.studio import records
from dragoman.studio.inspection import Inspection, inspect, read_input
from dragoman.studio.records import PredictRequest
from dragoman.studio.views.attention import Which, describe_attention
from dragoman.studio.views.comparison import describe_comparison
from dragoman.studio.views.matrices import pack_weights, unpack_weights
from dragoman.studio.views.prediction import describe_prediction
from dragoman.studio.views.tree import describe_tree
from dragoman.types import PRUNED


def make_request(text: str = "abcd", **more: Any) -> PredictRequest:
    return PredictRequest(input=text, **more)


def predict(system: System, source: Raw, request: PredictRequest) -> tuple[records.Prediction, Inspection]:
    inspection = inspect(system, source, request)
    return describe_prediction(inspection, request), inspection


def attend(system: System, source: str, tokens: Sequence[int], which: Which) -> records.Attention:
    session = system.session()
    return describe_attention(session, read_input(session, source), tokens, which)


def test_a_block_of_weights_comes_back_as_it_was() -> None:
    block = np.random.default_rng(0).random((3, 4, 5))
    fine, coarse = pack_weights(block), pack_weights(block, max_fine_cells=10)
    assert (fine.encoding, coarse.encoding) == ("uint16", "uint8")
    np.testing.assert_allclose(unpack_weights(fine), block, atol=1e-5)
    np.testing.assert_allclose(unpack_weights(coarse), block, atol=2.1e-3)
    assert unpack_weights(pack_weights(block[0])).shape == (1, 4, 5)
    spread = pack_weights(np.full((48, 512, 512), 1 / 512, np.float32))
    assert spread.encoding == "uint16" and len(spread.data) < 34_000_000
    np.testing.assert_allclose(unpack_weights(spread)[0, 0], 1 / 512, rtol=0.01)
    assert unpack_weights(pack_weights(np.array([[-0.1, 0.0, 1.0, 1.2]])))[0, 0].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("which", ["recurrent", "heads"])
def test_a_view_has_what_the_system_predicts(which: str, request: pytest.FixtureRequest) -> None:
    system: System = request.getfixturevalue(which)
    prediction, _ = predict(system, "abcd", make_request(n_best=3))
    known = system.predict(["abcd"], n_best=3)[0]
    assert [output.text for output in prediction.outputs] == [output.text for output in known.outputs]
    assert [axis.labels for axis in prediction.axes] == [list(known.labels)]
    for output, other in zip(prediction.outputs, known.outputs, strict=True):
        assert [token.text for token in output.tokens] == list(other.tokens)
        np.testing.assert_allclose([token.log_prob for token in output.tokens], other.log_probs, atol=1e-4)
        assert output.score == other.score
        for token in output.tokens:
            best = [other.log_prob for other in token.alternatives]
            assert best == sorted(best, reverse=True)
            assert 0 <= token.entropy <= math.log2(system.target.size) + 1e-4
            if token.rank <= len(best):
                np.testing.assert_allclose(best[token.rank - 1], token.log_prob, atol=1e-5)
                assert token.id in [other.id for other in token.alternatives]


def test_what_people_read_is_without_smoothing(recurrent: System) -> None:
    """A token of which a smoothed model is as sure as it can be is shown as certain; log-probabilities stay."""
    assert recurrent.confidence is not None
    plain = replace(recurrent, confidence=None)
    smoothed = replace(recurrent, confidence=replace(recurrent.confidence, smoothing=0.1, vocabulary=10))
    assert smoothed.token_probabilities(np.log([0.91, 0.46, 0.01])) == pytest.approx([1.0, 0.5, 0.0001])
    assert plain.token_probabilities(np.log([0.91, 0.46])) == pytest.approx([0.91, 0.46])
    for system in (plain, smoothed):
        asked = make_request(n_best=2)
        shown, inspection = predict(system, "abcd", asked)
        expected = [output.confidence for output in system.predict("abcd", n_best=2).outputs]
        assert [output.confidence for output in shown.outputs] == expected
        assert (shown.right == "") == (system.confidence is None) and shown.confidence_note == ""
        tokens = [token for output in shown.outputs for token in output.tokens]
        nodes = [node for step in describe_tree(inspection, asked).steps for node in step]
        for each in (*tokens, *nodes, *(other for token in tokens for other in token.alternatives)):
            assert each.log_prob is not None
            assert each.probability == pytest.approx(system.token_probabilities([each.log_prob])[0], rel=1e-3)


def test_probabilities_that_are_shown_are_together_at_most_one(recurrent: System) -> None:
    """Where more smoothing is taken away than a token has, "100 %" beside "9 %" would be left."""
    assert recurrent.confidence is not None
    size = recurrent.target.size
    system = replace(recurrent, confidence=replace(recurrent.confidence, smoothing=0.9, vocabulary=100 * size))
    assert system.token_probabilities(np.full(size, -math.log(size))).sum() > 2
    asked = make_request(n_best=2, alternatives=size)
    shown, inspection = predict(system, "abcd", asked)
    tree = describe_tree(inspection, asked)
    for token in shown.outputs[0].tokens:
        assert sum(other.probability for other in token.alternatives) <= 1 + 1e-6
        (own,) = (other for other in token.alternatives if other.id == token.id)
        assert own.probability == pytest.approx(token.probability)
    for step in tree.steps:
        for parent in {node.parent for node in step}:
            assert sum(node.probability for node in step if node.parent == parent) <= 1 + 1e-6


def test_entropy_is_that_of_the_probabilities_that_are_shown(recurrent: System) -> None:
    assert recurrent.confidence is not None
    size = recurrent.target.size
    smoothed = replace(recurrent, confidence=replace(recurrent.confidence, smoothing=0.1, vocabulary=size))
    for system in (replace(recurrent, confidence=None), smoothed):
        shown, inspection = predict(system, "abcd", make_request())
        tokens = shown.outputs[0].tokens
        (path,) = inspection.session.force(inspection.prepared, [[token.id for token in tokens]], alternatives=size)
        read = system.token_probabilities(path.alternative_log_probs)  # (T, V)
        read /= read.sum(1, keepdims=True)
        wanted = -np.sum(read * np.log2(read), 1)
        assert [token.entropy for token in tokens] == pytest.approx(wanted, abs=1e-4)
    own = np.exp(path.alternative_log_probs)
    assert (wanted < -np.sum(own * np.log2(own), 1) - 5e-4).all(), "smoothing is uncertainty that was taught"


def test_probabilities_of_classes_are_without_smoothing(recurrent: System, label_run: Any) -> None:
    system = System.load(label_run.folder, "cpu")
    assert recurrent.confidence is not None
    fitted = replace(recurrent.confidence, smoothing=0.1, vocabulary=system.target.size)
    source = {"left": "aabab", "right": "babaa"}
    for confidence in (None, fitted):
        asked = replace(system, confidence=confidence)
        shown, inspection = predict(asked, source, records.PredictRequest(input=source))
        outputs = [[*system.target.encode(label), EOS] for label in system.classes]
        paths = inspection.session.force(inspection.prepared, outputs)
        wanted = np.array([asked.token_probabilities(path.log_probs).prod() for path in paths])
        found = {one.label: one.probability for one in shown.classes}
        assert [found[label] for label in system.classes] == pytest.approx(wanted / wanted.sum(), abs=1e-5)
        own = inspection.session.class_probabilities([inspection.prepared])[0]
        assert found == pytest.approx(own.shown, abs=1e-5)
        assert (found == pytest.approx(own.own, abs=1e-5)) == (confidence is None), "beside the model's own"


@pytest.mark.parametrize("which", ["recurrent", "heads"])
def test_attention_shown_is_that_of_the_returned_hypothesis(which: str, request: pytest.FixtureRequest) -> None:
    system: System = request.getfixturevalue(which)
    prediction, inspection = predict(system, "abcdeb", make_request("abcdeb", beam=4, n_best=4))
    differ = 0
    (searched,) = inspection.session.search([inspection.prepared], attention=True)
    assert [each.tokens for each in searched.hypotheses] == [each.tokens for each in inspection.result.hypotheses]
    for output, hypothesis in zip(prediction.outputs, searched.hypotheses, strict=True):
        assert output.attention is not None and hypothesis.attention is not None
        np.testing.assert_allclose(unpack_weights(output.attention)[0], hypothesis.attention.mean(1), atol=1e-4)
        tokens = [token.id for token in output.tokens]
        assert tokens == list(hypothesis.tokens)
        every = attend(system, "abcdeb", tokens, "cross")
        assert every.maps is not None
        np.testing.assert_allclose(unpack_weights(every.maps), hypothesis.attention.transpose(1, 0, 2), atol=1e-4)
        assert every.layers * every.heads == every.maps.maps == system.model.decoder.maps
        assert (every.rows, every.columns) == ([token.text for token in output.tokens], prediction.axes[0].labels)
        first = searched.hypotheses[0].attention
        assert first is not None
        differ += hypothesis.attention.shape != first.shape or not np.allclose(hypothesis.attention, first, atol=1e-3)
    assert differ  # had all the same attention, showing the wrong one would go unnoticed


def test_self_attention_is_described_layer_by_layer(heads: System, recurrent: System) -> None:
    tokens = inspect(heads, "abcd", make_request()).result.best.tokens
    known = heads.predict(["abcd"], maps=True)[0]
    own = attend(heads, "abcd", tokens, "encoder")
    back = attend(heads, "abcd", tokens, "decoder")
    assert (own.layers, own.heads, back.layers, back.heads) == (2, 2, 3, 2)
    assert own.maps is not None and back.maps is not None
    assert known.self_attention is not None and known.outputs[0].self_attention is not None
    size = len(own.rows)
    np.testing.assert_allclose(unpack_weights(own.maps), known.self_attention.reshape(4, size, size), atol=1e-4)
    size = len(tokens)
    np.testing.assert_allclose(
        unpack_weights(back.maps), known.outputs[0].self_attention.reshape(6, size, size), atol=1e-4
    )
    assert back.columns[0] == "<s>"
    with pytest.raises(UserError, match="no self-attention in its encoder"):
        attend(recurrent, "abcd", tokens, "encoder")


def test_forcing_an_alternative_goes_on_from_there(recurrent: System) -> None:
    prediction, _ = predict(recurrent, "abcd", make_request())
    tokens = prediction.outputs[0].tokens
    other = next(other for other in tokens[1].alternatives if other.id > 3 and other.id != tokens[1].id)
    prefix = [tokens[0].id, other.id]
    again, inspection = predict(recurrent, "abcd", make_request(prefix_tokens=prefix))
    assert [token.id for token in again.outputs[0].tokens[:2]] == prefix
    assert [token.forced for token in again.outputs[0].tokens[:3]] == [True, True, False]
    np.testing.assert_allclose(again.outputs[0].tokens[1].log_prob, other.log_prob, atol=1e-5)
    shown = describe_tree(inspection, make_request(prefix_tokens=prefix))
    assert shown.forced == 2 and [len(step) for step in shown.steps[:2]] == [1, 1]
    by_text, _ = predict(recurrent, "abcd", make_request(prefix=recurrent.target.decode(prefix)))
    assert by_text.outputs[0].text == again.outputs[0].text


def test_a_banned_word_is_not_written(recurrent: System) -> None:
    plain, _ = predict(recurrent, "abcd", make_request())
    text = plain.outputs[0].text
    without, _ = predict(recurrent, "abcd", make_request(forbidden=[text[0]], n_best=3))
    assert all(text[0] not in output.text for output in without.outputs)
    assert len(text) > 1
    pair = text[:2]
    without, _ = predict(recurrent, "abcd", make_request(forbidden=[pair], n_best=3))
    assert all(pair not in output.text for output in without.outputs)


@pytest.mark.parametrize("beam", [1, 3])
def test_the_tree_is_the_trace(recurrent: System, beam: int) -> None:
    request = make_request(beam=beam, n_best=beam)
    inspection = inspect(recurrent, "abcd", request)
    shown = describe_tree(inspection, request)
    steps = inspection.result.trace.steps
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
    for number, output in enumerate(inspection.result.hypotheses):
        path = [node.token for step in shown.steps for node in step if number in node.outputs]
        assert path == list(output.tokens)
    assert shown.outputs == [output.text for output in inspection.prediction.outputs]


def test_where_the_reference_was_lost(recurrent: System) -> None:
    best = recurrent("abcd")
    prediction, _ = predict(recurrent, "abcd", make_request(reference=best))
    assert (
        prediction.reference is not None
        and prediction.reference.verdict == "found"
        and prediction.reference.lost_at is None
    )
    request = make_request(reference="hhhhhh", beam=2)
    inspection = inspect(recurrent, "abcd", request)
    shown = describe_tree(inspection, request)
    assert shown.reference is not None and shown.reference.verdict == "model error"
    lost = shown.reference.lost_at
    assert lost is not None and "beam" not in shown.reference.sentence, "the page says where it was lost"
    assert shown.reference.sentence.endswith("No search will help.")
    marked = [[node for node in step if node.reference] for step in shown.steps]
    assert all(len(nodes) == 1 and nodes[0].fate == "kept" for nodes in marked[:lost])
    assert all(node.fate == "pruned" for node in marked[lost]) and not any(marked[lost + 1 :])
    assert shown.reference.margin is not None and shown.reference.margin >= 0
    if marked[lost]:
        assert marked[lost][0].margin == pytest.approx(shown.reference.margin, abs=1e-4)


def test_a_reference_that_the_request_excludes_is_no_search_error(recurrent: System) -> None:
    best = recurrent("abcd")
    other = recurrent.target.encode(next(sign for sign in "abcdefgh" if sign != best[0]))
    prediction, _ = predict(recurrent, "abcd", make_request(reference=best, prefix_tokens=[*other]))
    assert prediction.reference is not None and prediction.reference.verdict == "excluded"
    assert "forced beginning" in prediction.reference.sentence
    prediction, _ = predict(recurrent, "abcd", make_request(reference=best, forbidden=[best[0]]))
    assert prediction.reference is not None and prediction.reference.verdict == "excluded"


def test_a_reference_that_was_forced_is_not_simply_found(recurrent: System) -> None:
    best = recurrent("abcd")
    free, _ = predict(recurrent, "abcd", make_request(reference=best))
    assert free.reference is not None and free.reference.sentence == "The best output is the reference."
    forced, _ = predict(recurrent, "abcd", make_request(reference=best, prefix_tokens=recurrent.target.encode(best[0])))
    assert forced.reference is not None and forced.reference.verdict == "found"
    assert forced.reference.sentence == "With the forced beginning, the best output is the reference."


def test_scores_in_a_sentence_have_the_minus_sign_of_the_page(recurrent: System) -> None:
    prediction, _ = predict(recurrent, "abcd", make_request(reference="hhhhhh"))
    assert prediction.reference is not None and "(−" in prediction.reference.sentence
    assert "-" not in prediction.reference.sentence


def test_a_classifier_shows_the_probabilities_of_all_classes(label_run: Any, recurrent: System) -> None:
    system = System.load(label_run.folder, "cpu")
    source = {"left": "aabab", "right": "babaa"}
    prediction, _ = predict(system, source, PredictRequest(input=source))
    assert sorted(one.label for one in prediction.classes) == sorted(system.classes)
    shares = [one.probability for one in prediction.classes]
    assert sum(shares) == pytest.approx(1) and shares == sorted(shares, reverse=True)
    assert predict(recurrent, "abcd", make_request())[0].classes == []


def test_a_search_error_is_told_from_a_model_error(recurrent: System) -> None:
    """What a wide beam finds and greedy search does not is a search error of the greedy search."""
    for text in ("abcd", "hgfe", "aabbcc", "dcbahg", "ghab", "fedcba", "ahbgcf", "ccddee"):
        greedy, wide = recurrent.predict([text], beam=1)[0], recurrent.predict([text], beam=40)[0]
        if wide.score > greedy.score + 1e-3:
            prediction, _ = predict(recurrent, text, make_request(text, beam=1, reference=wide.text))
            assert prediction.reference is not None and prediction.reference.verdict == "search error"
            assert "A wider beam may find it." in prediction.reference.sentence
            assert prediction.reference.score == pytest.approx(wide.score, abs=1e-3)
            return
    pytest.fail("greedy search found the best output of every input: give inputs where it does not")


def test_mistakes_are_reported_in_a_sentence(recurrent: System) -> None:
    for request, words in (
        (make_request(""), "empty input"),
        (make_request(prefix="a", prefix_tokens=[4]), "not both"),
        (make_request(prefix_tokens=[10_000]), "no token 10000"),
        (make_request(beam=2, n_best=3), "n_best = 3"),
    ):
        with pytest.raises(UserError, match=words):
            predict(recurrent, request.input, request)
    with pytest.raises(UserError, match="vocabulary ends"):
        attend(recurrent, "ab", [99_999], "cross")


@pytest.mark.parametrize(
    "text", ["</script><b>x</b>", "שלום ab مرحبا", "👩‍👩‍👧 a🏳️‍🌈", "ab " * 1666, "\u202eab\u2028cd\x00"]
)
def test_any_text_is_preserved(recurrent: System, text: str) -> None:
    prediction, _ = predict(recurrent, text, make_request(text, max_length=20))
    again = type(prediction).model_validate_json(prediction.model_dump_json())
    assert again == prediction
    assert again.input["source"].strip() == " ".join(text.split("\n")).strip()
    assert set(prediction.unknown) <= {"source"}


def test_only_what_the_search_may_write_is_offered(recurrent: System) -> None:
    size = recurrent.target.size

    def offered(forbidden: list[str]) -> list[set[int]]:
        request = records.PredictRequest(input="abcd", forbidden=forbidden, alternatives=50)
        tokens = describe_prediction(inspect(recurrent, "abcd", request), request).outputs[0].tokens
        return [{alternative.id for alternative in token.alternatives} for token in tokens]

    (banned,) = recurrent.target.encode("c")
    for ids in offered([]):
        assert ids == set(range(EOS, size))  # everything but the three symbols that no output has
    for ids in offered(["c"]):
        assert ids == set(range(EOS, size)) - {banned}


@pytest.mark.parametrize("forbidden", [[], ["c"]])
def test_a_rank_counts_what_is_offered_and_nothing_else(recurrent: System, forbidden: list[str]) -> None:
    """The reader counts the alternatives up to the token: "rank 4" is the fourth of them."""
    request = records.PredictRequest(input="abcd", n_best=5, reference="zq", forbidden=forbidden, alternatives=50)
    prediction = describe_prediction(inspect(recurrent, "abcd", request), request)
    assert prediction.reference is not None
    paths = [output.tokens for output in prediction.outputs] + [prediction.reference.tokens]
    ranks = set()
    for token in (token for tokens in paths for token in tokens):
        offered = [alternative.id for alternative in token.alternatives]
        assert offered.index(token.id) + 1 == token.rank
        ranks.add(token.rank)
    assert len(ranks) > 1  # some token was not the likeliest
    tree = describe_tree(inspect(recurrent, "abcd", request), request)
    assert tree.reference is not None
    assert [token.rank for token in tree.reference.tokens] == [token.rank for token in prediction.reference.tokens]


def test_a_banned_run_of_tokens_is_not_offered_after_its_beginning(recurrent: System) -> None:
    first = recurrent("abcd")
    pair = first[:2]
    request = records.PredictRequest(
        input="abcd", forbidden=[pair], prefix_tokens=recurrent.target.encode(pair[0]), alternatives=50
    )
    tokens = describe_prediction(inspect(recurrent, "abcd", request), request).outputs[0].tokens
    assert tokens[0].text == pair[0] and tokens[0].forced
    assert pair[1] not in [alternative.text for alternative in tokens[1].alternatives]
    assert pair[1] in [alternative.text for alternative in tokens[0].alternatives]


@pytest.mark.parametrize("token", [PAD, UNK, BOS])
def test_a_symbol_that_stands_for_no_text_cannot_be_forced(recurrent: System, token: int) -> None:
    with pytest.raises(UserError, match="stands for no text"):
        inspect(recurrent, "abcd", records.PredictRequest(input="abcd", prefix_tokens=[token]))


def test_the_smallest_p_value_says_that_it_is_a_bound(recurrent: System, tiny_run: Any) -> None:
    rows = read_files(recurrent, [str(tiny_run.pairs)])
    compared = compare_systems(recurrent, recurrent, rows, "pairs")
    assert not describe_comparison(compared, recurrent).scores[0].smallest
    least = replace(compared, scores=[replace(compared.scores[0], p_value=SMALLEST_P)])
    assert describe_comparison(least, recurrent).scores[0].smallest
