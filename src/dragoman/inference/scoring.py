"""Forced scoring: the log-probability of each token of given outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from dragoman.data.corpus.running import flow
from dragoman.data.vocabulary import BOS, EOS
from dragoman.inference.engine.contract import Arrays, Engine
from dragoman.runtime.confidence import Confidence
from dragoman.search.rows import SearchDecoder, device_of
from dragoman.types import State

ScoredTokens: TypeAlias = tuple[Sequence[int], tuple[float, ...]]  # tokens, and the log-probability of each

MOST_PROBABILITIES = 50_000_000  # held in memory at a time
CARRIED_TOKENS = 512  # tokens of the one stream that are read together, where a state is carried on


@dataclass(frozen=True)
class ForcedPath:
    """A given output, token by token, as the model sees it."""

    tokens: tuple[int, ...]
    log_probs: np.ndarray  # (T,)
    entropy: np.ndarray  # (T,) bits, without the label smoothing of training if that was fitted
    rank: np.ndarray  # (T,) of the token among those that may be written, from 1
    alternatives: np.ndarray  # (T, K) the likeliest tokens that may be written, best first
    alternative_log_probs: np.ndarray  # (T, K) -inf where fewer than K may be written
    attention: np.ndarray | None  # (T, A, S)


def score_running_text(
    engine: Engine, lines: Sequence[Sequence[int]], batch: int, on_batch: Callable[[], object] | None = None
) -> list[ScoredTokens]:
    """Score the lines of one text, each given the lines before it.

    ``on_batch`` is called before each batch, and may end the scoring by raising.
    """
    engine = engine.of_sequences

    def start(rows: int) -> State:
        return engine.decoder.start(engine.encode([{}] * rows), rows)

    forced = force_running(engine.decoder, start, lines, chunk=engine.chunk, batch=batch, on_batch=on_batch)
    log_probs = iter(forced)
    return [(tokens, tuple(islice(log_probs, len(tokens)))) for tokens in lines]


@torch.inference_mode()
def force_running(
    decoder: SearchDecoder,
    start: Callable[[int], State],
    lines: Sequence[Sequence[int]],
    *,
    chunk: int | None,
    batch: int,
    on_batch: Callable[[], object] | None = None,
) -> list[float]:
    """Return the log-probability of every token of a text, whose lines end with the end symbol.

    ``start`` gives the state of so many rows that have read nothing. Without a ``chunk`` the decoder carries its state
    on, and the text is one stream. With one, the text is read in pieces of ``chunk`` tokens that start afresh, as in
    training, ``batch`` of them side by side. ``on_batch`` is called before each call of the decoder.
    """
    inputs, targets = map(torch.from_numpy, flow(lines, BOS, EOS))
    state = start(1)
    device = device_of(decoder, state)
    log_probs: list[float] = []
    before_each = on_batch or (lambda: None)
    if chunk is None:
        for read, gold in zip(inputs.split(CARRIED_TOKENS), targets.split(CARRIED_TOKENS), strict=True):
            before_each()
            step = decoder(read.to(device)[None], state)
            state = step.state
            log_probs += step.log_probs[0].gather(1, gold.to(device)[:, None])[:, 0].tolist()
        return log_probs
    for read, gold in zip(inputs.split(chunk * batch), targets.split(chunk * batch), strict=True):
        before_each()
        rows = -(-len(read) // chunk)
        padding = (0, rows * chunk - len(read))  # after the text, so causality hides it
        read, gold = (torch.nn.functional.pad(x, padding).view(rows, chunk).to(device) for x in (read, gold))
        log_probs += decoder(read, start(rows)).log_probs.gather(2, gold[:, :, None]).flatten().tolist()
    return log_probs[: len(targets)]


@torch.inference_mode()
def force_paths(
    engine: Engine,
    arrays: Arrays,
    sequences: Sequence[Sequence[int]],
    *,
    vocabulary: int,
    alternatives: int,
    attention: bool,
    permitted: Callable[[Sequence[int]], np.ndarray] | None = None,
    on_batch: Callable[[], object] | None = None,
    confidence: Confidence | None = None,
) -> list[ForcedPath]:
    """Score several outputs of one input, with the ``alternatives`` likeliest tokens at each place.

    ``permitted`` returns which tokens may be written after a prefix, (V,); None: all of them. ``on_batch`` is called
    before each batch of outputs, and may end the scoring by raising. ``confidence`` says how much label smoothing
    there is in the probabilities, which entropies are computed without.
    """
    engine = engine.of_sequences
    longest = max(1, *map(len, sequences)) if sequences else 1
    rows = max(1, MOST_PROBABILITIES // (longest * vocabulary))
    start = engine.decoder.start(engine.encode([arrays]), 1)
    paths: list[ForcedPath] = []
    for begin in range(0, len(sequences), rows):
        if on_batch is not None:
            on_batch()
        some = [tuple(sequence) for sequence in sequences[begin : begin + rows]]
        tokens = torch.full((len(some), longest + 1), EOS, device=engine.device)  # (N, 1 + T)
        tokens[:, 0] = BOS
        for row, sequence in enumerate(some):
            tokens[row, 1 : 1 + len(sequence)] = torch.tensor(sequence, dtype=torch.long)
        step = engine.decoder(tokens[:, :-1], start.spread(len(some)), attention and engine.has_attention)
        maps = None if step.attention is None else step.attention.float().cpu().numpy()  # (N, T, A, S)
        for row, (sequence, log_probs) in enumerate(zip(some, step.log_probs, strict=True)):
            length = len(sequence)
            own_maps = None if maps is None else maps[row, :length]
            own = log_probs[:length].float()
            paths.append(_forced_path(sequence, own, alternatives, permitted, own_maps, confidence))
    return paths


@torch.inference_mode()
def find_likeliest(
    engine: Engine, rows: Sequence[Arrays], targets: Sequence[Sequence[int]], vocabulary: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the log-probability of the likeliest token before each token of given outputs, and whether it is that one.

    Both are (tokens of all outputs,), one output after the other.
    """
    engine = engine.of_sequences
    longest = max(1, *map(len, targets))
    at_once = max(1, MOST_PROBABILITIES // (longest * vocabulary))
    if len(targets) > at_once:
        parts = (slice(begin, begin + at_once) for begin in range(0, len(targets), at_once))
        found = [find_likeliest(engine, rows[part], targets[part], vocabulary) for part in parts]
        return np.concatenate([best for best, _ in found]), np.concatenate([hit for _, hit in found])
    tokens = torch.full((len(targets), longest + 1), EOS, device=engine.device)  # (B, 1 + T)
    mask = torch.zeros(len(targets), longest, dtype=torch.bool, device=engine.device)  # (B, T) True = real
    tokens[:, 0] = BOS
    for row, target in enumerate(targets):
        tokens[row, 1 : 1 + len(target)] = torch.tensor(target, dtype=torch.long)
        mask[row, : len(target)] = True
    step = engine.decoder(tokens[:, :-1], engine.decoder.start(engine.encode(rows), len(rows)))
    best = step.log_probs.max(2)  # (B, T)
    return best.values[mask].double().cpu().numpy(), (best.indices == tokens[:, 1:])[mask].cpu().numpy()


@torch.inference_mode()
def score_classes(
    engine: Engine, rows: Sequence[Arrays], classes: Sequence[Sequence[int]], vocabulary: int
) -> np.ndarray:
    """Return the log-probability of each token of each class given each input, (B, classes, T).

    Every class ends with the end symbol; behind it there are zeros.
    """
    longest = max(map(len, classes))
    at_once = max(1, MOST_PROBABILITIES // (len(rows) * longest * vocabulary))
    start = engine.decoder.start(engine.encode(rows), len(rows))
    scores = []
    for begin in range(0, len(classes), at_once):
        some = classes[begin : begin + at_once]
        tokens = torch.full((len(some), longest + 1), EOS, device=engine.device)  # (K, 1 + T)
        mask = torch.zeros(len(some), longest, dtype=torch.bool, device=engine.device)  # (K, T) True = real
        tokens[:, 0] = BOS
        for row, output in enumerate(some):
            tokens[row, 1 : 1 + len(output)] = torch.tensor(output, dtype=torch.long)
            mask[row, : len(output)] = True
        tokens, mask = tokens.repeat(len(rows), 1), mask.repeat(len(rows), 1)  # the classes of an input side by side
        step = engine.decoder(tokens[:, :-1], start.spread(len(some)))
        chosen = step.log_probs.gather(2, tokens[:, 1:, None])[..., 0]  # (B * K, T)
        scores.append(torch.where(mask, chosen, 0.0).view(len(rows), len(some), longest))
    return torch.cat(scores, 1).float().cpu().numpy()


def _forced_path(
    tokens: tuple[int, ...],
    log_probs: Tensor,
    alternatives: int,
    permitted: Callable[[Sequence[int]], np.ndarray] | None,
    attention: np.ndarray | None,
    confidence: Confidence | None,
) -> ForcedPath:
    """Describe one path. ``log_probs`` is (T, V). A token of the path counts as permitted in its own place."""
    chosen = log_probs.gather(1, torch.tensor(tokens, dtype=torch.long, device=log_probs.device)[:, None])  # (T, 1)
    considered = log_probs
    if permitted is not None and tokens:
        allowed = np.stack([permitted(tokens[:place]) for place in range(len(tokens))])  # (T, V)
        allowed[np.arange(len(tokens)), list(tokens)] = True
        considered = log_probs.masked_fill(~torch.from_numpy(allowed).to(log_probs.device), -torch.inf)
    best = considered.topk(min(alternatives, log_probs.shape[1]), dim=1)
    return ForcedPath(
        tokens,
        chosen[:, 0].cpu().numpy(),
        _entropy(log_probs.double().cpu().numpy(), confidence),
        ((considered > chosen).sum(1) + 1).cpu().numpy(),
        best.indices.cpu().numpy(),
        best.values.cpu().numpy(),
        attention,
    )


def _entropy(log_probs: np.ndarray, confidence: Confidence | None) -> np.ndarray:
    """Return the entropy of each distribution (T, V) in bits, (T,), without label smoothing if that was fitted."""
    shares = np.exp(log_probs if confidence is None else confidence.log_probs(log_probs))
    shares /= shares.sum(1, keepdims=True)
    parts = np.where(shares > 0, shares * np.log2(np.maximum(shares, np.finfo(np.float64).tiny)), 0.0)
    return np.maximum(0.0, -parts.sum(1))


@torch.inference_mode()
def score_with(decoder: SearchDecoder, memory: Any, tokens: Sequence[int], device: torch.device) -> np.ndarray:
    """Return what ``decoder`` counts for each of the tokens of one output, (T,)."""
    given = torch.tensor([[BOS, *tokens]], device=device)  # (1, 1 + T)
    scores = decoder(given[:, :-1], decoder.start(memory, 1)).log_probs
    return scores.gather(2, given[:, 1:, None])[0, :, 0].float().cpu().numpy()
