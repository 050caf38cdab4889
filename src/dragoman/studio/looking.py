"""One input looked at closely: searched with its record kept, and hypotheses scored again by force.

Probabilities, alternatives and attention of a hypothesis all come from one call of the decoder with its tokens given,
so that they belong to the hypothesis that is shown, whichever search found it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dragoman.asking import Asked, read
from dragoman.data.examples import SOURCE, tidy
from dragoman.data.media import MediaError
from dragoman.data.vocabulary import BOS, EOS
from dragoman.errors import UserError
from dragoman.predictions import Prediction, Raw
from dragoman.search import Result, SearchConfig
from dragoman.studio.records import PredictRequest, whole
from dragoman.system import System

AT_ONCE = 50_000_000  # probabilities held in memory at a time


@dataclass(frozen=True)
class Loaded:
    """An input as the model reads it."""

    system: System
    source: Raw
    raw: Mapping[str, str]  # by name of source; a prompt stands under "source"
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True)
class Found:
    """A search and all that it left behind."""

    loaded: Loaded
    prediction: Prediction
    result: Result
    config: SearchConfig
    limit: int  # most tokens of an output
    prefix: tuple[int, ...]  # forced tokens
    seconds: float


@dataclass(frozen=True)
class Forced:
    """A given hypothesis, token by token."""

    tokens: tuple[int, ...]
    log_probs: np.ndarray  # (T,)
    entropy: np.ndarray  # (T,) bits
    rank: np.ndarray  # (T,) from 1
    likeliest: np.ndarray  # (T, K) tokens, best first
    likeliest_log_probs: np.ndarray  # (T, K)
    attention: np.ndarray | None  # (T, A, S)


def load_input(system: System, source: Raw) -> Loaded:
    files = {name for name, modality in system.modalities.items() if modality.is_file}
    raw = {name: one if name in files else whole(one) for name, one in system._tidied(source).items()}
    if system.modalities and not any(raw.values()):
        raise UserError("an empty input has an empty output and nothing to look at; give some text")
    try:
        tensors = read(system._tensors(raw))
    except MediaError as error:
        raise UserError(f"{', '.join(raw.values())}: {error}") from None
    return Loaded(system, source, raw, tensors)


def look(system: System, source: Raw, request: PredictRequest) -> Found:
    """Search as the request asks."""
    loaded = load_input(system, source)
    config = system.search_config(
        beam=request.beam,
        n_best=request.n_best,
        normalize=request.normalize,
        max_length=request.max_length,
        sample=False,
        **system.forbidding(request.forbidden),
    )
    prefix = _prefix(loaded, request)
    system.model.eval()
    began = time.perf_counter()
    limit = system._limit(loaded.tensors) + (len(prefix) if system.is_language_model else 0)
    given = None if not prefix and not system.is_language_model else [prefix]
    asked = Asked([loaded.tensors], [system._limit(loaded.tensors)], [0], given)
    (result,) = system._search(asked, config, True)
    seconds = time.perf_counter() - began
    prompt = loaded.raw[SOURCE] if system.is_language_model else None
    prediction = system._reply(source, loaded.raw, result, True, prompt)
    most = limit if config.max_length is None else min(limit, config.max_length)
    return Found(loaded, prediction, result, config, most, tuple(prefix), seconds)


def force(loaded: Loaded, sequences: Sequence[Sequence[int]], alternatives: int, attention: bool) -> list[Forced]:
    """Each sequence as the model sees it when its tokens are given."""
    system = loaded.system
    vocabulary = system.target.size
    longest = max(1, *map(len, sequences)) if sequences else 1
    rows = max(1, AT_ONCE // (longest * vocabulary))
    need = attention and bool(system.model.decoder.maps)
    found: list[Forced] = []
    system.model.eval()
    with torch.inference_mode():
        start = system.forced.start(system._encode([loaded.tensors]), 1)
        for begin in range(0, len(sequences), rows):
            some = [tuple(sequence) for sequence in sequences[begin : begin + rows]]
            given = torch.full((len(some), longest + 1), EOS, device=system.device)
            given[:, 0] = BOS
            for row, sequence in enumerate(some):
                given[row, 1 : 1 + len(sequence)] = torch.tensor(sequence, dtype=torch.long)
            step = system.forced(given[:, :-1], start.spread(len(some)), need)
            seen = None if step.attention is None else step.attention.float().cpu().numpy()  # (N, T, A, S)
            for row, (sequence, log_probs) in enumerate(zip(some, step.log_probs, strict=True)):
                length = len(sequence)
                looked = None if seen is None else seen[row, :length]
                found.append(_forced(sequence, log_probs[:length].float(), alternatives, looked))
    return found


def ranked(found: Found, forced: Forced) -> np.ndarray:
    """(T,) what the search would count for each token: the model's own number, unless CTC has a say in it too."""
    system = found.loaded.system
    decoder = system.searched(found.config)
    if decoder is system.forced:
        return forced.log_probs
    with torch.inference_mode():
        start = decoder.start(system._encode([found.loaded.tensors]), 1)
        given = torch.tensor([[BOS, *forced.tokens]], device=system.device)
        scores = decoder(given[:, :-1], start).log_probs
        return scores.gather(2, given[:, 1:, None])[0, :, 0].float().cpu().numpy()


def _forced(tokens: tuple[int, ...], log_probs: Tensor, alternatives: int, attention: np.ndarray | None) -> Forced:
    """``log_probs`` is (T, V)."""
    chosen = log_probs.gather(1, torch.tensor(tokens, dtype=torch.long, device=log_probs.device)[:, None])  # (T, 1)
    parts = torch.where(log_probs > -torch.inf, log_probs.exp() * log_probs, 0.0)
    best = log_probs.topk(min(alternatives, log_probs.shape[1]), dim=1)
    return Forced(
        tokens,
        chosen[:, 0].cpu().numpy(),
        (-parts.sum(1) / np.log(2)).clamp_min(0.0).cpu().numpy(),
        ((log_probs > chosen).sum(1) + 1).cpu().numpy(),
        best.indices.cpu().numpy(),
        best.values.cpu().numpy(),
        attention,
    )


def self_attention(loaded: Loaded, tokens: Sequence[int]) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Of the encoder (L, H, S, S), and of the decoder over these tokens (L, H, T, P): where each looked back."""
    system = loaded.system
    system.model.eval()
    with torch.inference_mode():
        padded = system._padded([loaded.tensors])
        own = system.model.self_attention(padded)
        given = torch.tensor([[BOS, *tokens[:-1]]], device=system.device)
        state = system.model.start(system.model.encode(padded), 1)
        back = system.model.decoder.self_attention(given, state)
    return tuple(None if one is None else one[0].float().cpu().numpy() for one in (own, back))  # type: ignore[return-value]


def _prefix(loaded: Loaded, request: PredictRequest) -> list[int]:
    target = loaded.system.target
    if request.prefix_tokens is not None and request.prefix is not None:
        raise UserError("a prefix is a text or tokens, not both; leave one out")
    if request.prefix_tokens is not None:
        wrong = [token for token in request.prefix_tokens if not 0 <= token < target.size]
        if wrong:
            raise UserError(f"prefix: there is no token {wrong[0]}, the vocabulary ends at {target.size - 1}")
        return list(request.prefix_tokens)
    if loaded.system.is_language_model:
        return target.encode(loaded.raw[SOURCE])
    return target.encode(tidy(request.prefix)) if request.prefix else []
