"""A prediction as records: outputs token by token, attention, the tree of the search, and where a reference was lost.

All are pure functions of what ``looking`` found; no browser is needed to test them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from dragoman.data.examples import tidy
from dragoman.data.vocabulary import EOS, UNK
from dragoman.errors import UserError
from dragoman.modalities.text import Text
from dragoman.predictions import Raw, read_before
from dragoman.search import SearchConfig
from dragoman.studio import records
from dragoman.studio.looking import Forced, Found, Loaded, force, load_input, look, ranked, self_attention
from dragoman.studio.matrices import FINE, matrix
from dragoman.studio.media import Address, axes
from dragoman.studio.records import PredictRequest
from dragoman.system import System
from dragoman.types import FINISHED, KEPT, PRUNED, Frontier

CLOSE = 1e-5  # of log-probability per token: what two orders of the same sum may differ by


def predict(
    system: System, source: Raw, request: PredictRequest, run: str = "", address: Address = lambda _: ""
) -> tuple[records.Prediction, Found]:
    """Search, then score what was found (and the reference, if there is one) again, in one call."""
    found = look(system, source, request)
    return prediction(found, request, run, address), found


def prediction(found: Found, request: PredictRequest, run: str, address: Address) -> records.Prediction:
    loaded, system = found.loaded, found.loaded.system
    wanted = _wanted(system, request.reference)
    sequences = [hypothesis.tokens for hypothesis in found.result.hypotheses]
    scored = force(loaded, [*sequences, *([wanted] if wanted else [])], request.alternatives, attention=True)
    positions = len(found.prediction.labels)
    outputs = [
        records.Output(
            text=output.text,
            score=output.score,
            log_prob=output.log_prob,
            finished=output.finished,
            tokens=_tokens(system, forced, len(found.prefix)),
            attention=None if forced.attention is None else matrix(forced.attention[..., :positions].mean(1)),
        )
        for output, forced in zip(found.prediction.outputs, scored, strict=False)
    ]
    modalities = system.modalities
    strides = {name: system._stride(name) for name in modalities}
    return records.Prediction(
        run=run,
        input=dict(loaded.raw),
        outputs=outputs,
        axes=axes(modalities, dict(loaded.raw), dict(found.prediction.axes), strides, address),
        cross=maps(system, "cross"),
        encoder=maps(system, "encoder"),
        decoder=maps(system, "decoder"),
        search=search_record(found.config),
        reference=_reference(found, request.reference, scored[-1]) if wanted and request.reference else None,
        unknown={name: words for name, words in _unknown(system, loaded).items() if words},
        seconds=found.seconds,
    )


def search_record(config: SearchConfig) -> records.Search:
    return records.Search(beam=config.beam, n_best=config.n_best, normalize=config.normalize, alpha=config.alpha)


def maps(system: System, which: Literal["cross", "encoder", "decoder"]) -> records.Maps:
    """Layers × heads, as the config says them."""
    sources = list(system.recipe.sources.values())
    decoder = getattr(system.recipe.decoder, "network", system.recipe.decoder)  # of one over source and target
    heads = getattr(decoder, "heads", 0)
    if which == "cross":
        count = system.model.decoder.maps
        return records.Maps(layers=count // max(heads, 1), heads=max(heads, 1) if count else 0)
    if which == "encoder":
        part = sources[0].encoder if len(sources) == 1 else system.recipe.joint
        part = getattr(part, "inner", part)  # of one that first makes a sequence shorter
        heads = getattr(part, "heads", 0)
        return records.Maps(layers=getattr(part, "layers", 0) if heads else 0, heads=heads)
    return records.Maps(layers=getattr(decoder, "layers", 0) if heads else 0, heads=heads)


def attention(
    system: System, source: Raw, tokens: Sequence[int], which: Literal["cross", "encoder", "decoder"],
    most: int = FINE, loaded: Loaded | None = None,
) -> records.Attention:  # fmt: skip
    """Every map of a hypothesis, whose tokens are given. ``most``: cells that are kept finely."""
    loaded = loaded or load_input(system, source)
    if any(not 0 <= token < system.target.size for token in tokens):
        raise UserError(f"tokens: the vocabulary ends at {system.target.size - 1}; give the ids of an output")
    labels = [
        label
        for name, modality in system.modalities.items()
        for label in modality.axis(loaded.raw[name], system._stride(name)).labels
    ]
    pieces = system.target.pieces(tokens)
    weights: np.ndarray | None = None  # (L * H, rows, columns)
    rows, columns = pieces, labels
    if which == "cross":
        seen = force(loaded, [tokens], 0, attention=True)[0].attention if tokens else None  # (T, A, S)
        weights = None if seen is None else seen[..., : len(labels)].transpose(1, 0, 2)
    else:
        own, back = self_attention(loaded, tokens)
        if which == "encoder" and own is not None:
            weights, rows = own.reshape(-1, *own.shape[2:]), labels
        elif which == "decoder" and back is not None:
            columns = read_before(labels, pieces, system.model.decoder.reads_source)
            weights = back.reshape(-1, *back.shape[2:])
    if weights is None:
        what = "attention to the source" if which == "cross" else f"self-attention in its {which}"
        raise UserError(f"this model has no {what}; its outputs can be looked at all the same")
    shape = maps(system, which)
    return records.Attention(
        which=which, rows=rows, columns=columns, layers=shape.layers, heads=shape.heads,
        average=matrix(weights.mean(0)), maps=matrix(weights, most),
    )  # fmt: skip


def tree(found: Found, request: PredictRequest, run: str = "") -> records.Tree:
    """The search, step by step, as it was recorded."""
    system, trace = found.loaded.system, found.result.trace
    wanted = _wanted(system, request.reference)
    passes = _followed(found, wanted)
    reference = None
    if wanted and request.reference:
        reference = _reference(found, request.reference, force(found.loaded, [wanted], 0, attention=False)[0])
    last = len(trace.steps) - 1
    steps: list[list[records.Node]] = []
    before: list[int] = []  # ids of the rows that the step extends
    count = 0
    for index, frontier in enumerate(trace.steps):
        pieces = system.target.pieces(frontier.token.tolist())
        worst = _worst(frontier)
        cut = index == last and len(trace.steps) >= found.limit
        nodes = [
            records.Node(
                id=count + place,
                parent=before[int(frontier.parent[place])] if before else None,
                token=int(frontier.token[place]),
                text=piece,
                log_prob=float(frontier.log_prob[place]),
                total=float(frontier.total[place]),
                score=float(frontier.total[place]) / found.config.penalty(index + 1),
                fate=_fate(int(frontier.fate[place]), cut),
                margin=worst - float(frontier.total[place]) if frontier.fate[place] == PRUNED else None,
                outputs=[
                    number
                    for number, hypothesis in enumerate(found.result.hypotheses)
                    if index < len(hypothesis.path) and hypothesis.path[index] == place
                ],
                reference=index < len(passes) and passes[index] == place,
            )
            for place, piece in enumerate(pieces)
        ]
        before = [count + int(place) for place in frontier.kept]
        count += len(nodes)
        steps.append(nodes)
    return records.Tree(
        run=run,
        steps=steps,
        forced=len(trace.prefix),
        search=search_record(found.config),
        outputs=[output.text for output in found.prediction.outputs],
        reference=reference,
    )


def _fate(fate: int, cut: bool) -> Literal["pruned", "kept", "finished", "cut"]:
    if fate == FINISHED:
        return "finished"
    if fate == KEPT:
        return "cut" if cut else "kept"
    return "pruned"


def _worst(frontier: Frontier) -> float:
    """The lowest sum that was taken."""
    taken = frontier.total[frontier.fate != PRUNED]
    return float(taken.min()) if len(taken) else float(frontier.total.max())


def _wanted(system: System, reference: str | None) -> tuple[int, ...]:
    text = tidy(reference or "")
    return (*system.target.encode(text), EOS) if text else ()


def _followed(found: Found, wanted: Sequence[int]) -> list[int]:
    """The candidates along the reference's path, as far as the search went with it; the last may have been pruned."""
    path: list[int] = []
    row = 0
    for frontier, token in zip(found.result.trace.steps, wanted, strict=False):
        places = np.flatnonzero((frontier.token == token) & (frontier.parent == row))
        if not len(places):
            break
        place = int(places[0])
        path.append(place)
        if frontier.fate[place] != KEPT:
            break
        row = int(np.flatnonzero(frontier.kept == place)[0])
    return path


def _reference(found: Found, text: str, forced: Forced) -> records.Reference:
    """Was it found; if not, did the search lose it (its score is better) or does the model prefer something else?"""
    system, best = found.loaded.system, found.result.best
    total = float(forced.log_probs.sum(dtype=np.float64))
    log_probs = ranked(found, forced)
    score = float(log_probs.sum(dtype=np.float64)) / found.config.penalty(len(forced.tokens))
    path = _followed(found, forced.tokens)
    steps = found.result.trace.steps
    whole = len(path) == len(forced.tokens) and bool(steps[len(path) - 1].fate[path[-1]] != PRUNED)
    survived = len(path) - (bool(path) and bool(steps[len(path) - 1].fate[path[-1]] == PRUNED))
    lost_at = None if whole or survived >= len(steps) else survived
    margin = None
    if lost_at is not None:
        gap = _worst(steps[lost_at]) - float(log_probs[: lost_at + 1].sum(dtype=np.float64))
        margin = gap if np.isfinite(gap) and gap >= 0 else None
    verdict: Literal["found", "search error", "model error"]
    if best.tokens == forced.tokens or found.prediction.text == system.target.canonical(tidy(text)):
        verdict, sentence = "found", "The best output is the reference."
    elif score > best.score + CLOSE:
        verdict = "search error"
        sentence = f"The model prefers the reference (score {score:.3f}) to the output ({best.score:.3f}): "
        sentence += "the search lost it." if lost_at is not None or not whole else "yet it ranks lower here."
    else:
        verdict = "model error"
        sentence = f"The model prefers the output (score {best.score:.3f}) to the reference ({_told(score)})."
    if verdict != "found":
        if UNK in forced.tokens:
            sentence += " The reference has tokens that the model does not know."
        if found.prefix and forced.tokens[: len(found.prefix)] != found.prefix:
            sentence += " The reference does not begin with what was forced."
        if lost_at is not None and found.config.beam > 1:
            sentence += f" It left the beam at token {lost_at + 1}."
    return records.Reference(
        text=text,
        log_prob=total if np.isfinite(total) else None,
        score=score if np.isfinite(score) else None,
        verdict=verdict,
        sentence=sentence,
        lost_at=lost_at,
        margin=margin,
        tokens=_tokens(system, forced, 0),
    )


def _told(score: float) -> str:
    return f"{score:.3f}" if np.isfinite(score) else "probability zero"


def _tokens(system: System, forced: Forced, given: int) -> list[records.Token]:
    pieces = system.target.pieces(forced.tokens)
    found = []
    for index, (token, piece) in enumerate(zip(forced.tokens, pieces, strict=True)):
        likeliest = forced.likeliest[index].tolist()
        numbers = forced.likeliest_log_probs[index].tolist()
        alternatives = [
            records.Alternative(id=one, text=text, log_prob=number)
            for one, text, number in zip(likeliest, system.target.pieces(likeliest), numbers, strict=True)
            if number > -np.inf
        ]
        number = float(forced.log_probs[index])
        found.append(
            records.Token(
                id=token,
                text=piece,
                log_prob=number if number > -np.inf else None,
                entropy=float(forced.entropy[index]),
                rank=int(forced.rank[index]),
                alternatives=alternatives,
                forced=index < given,
            )
        )
    return found


def _unknown(system: System, loaded: Loaded) -> dict[str, list[str]]:
    return {
        name: unknown_words(modality, loaded.raw[name])
        for name, modality in system.modalities.items()
        if isinstance(modality, Text)
    }


def unknown_words(modality: Text, text: str) -> list[str]:
    """Words of ``text`` with something in them that the tokeniser does not know; without spaces, the characters."""
    if not modality.tokenizer.unknown(text):
        return []
    units = text.split() if " " in text or modality.tokenizer.kind in ("words", "symbols") else list(text)
    return list(dict.fromkeys(unit for unit in units if modality.tokenizer.unknown(unit)))
