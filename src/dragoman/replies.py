"""From what a search found to what a person gets: hypotheses of token ids → predictions with text and attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from dragoman.data.tokenizers import Tokenizer
from dragoman.data.vocabulary import BOS
from dragoman.nn.model import Model
from dragoman.predictions import Output, Prediction, Raw
from dragoman.search import Result
from dragoman.types import Axis, Hypothesis, Padded


def reply(
    source: Raw, axes: Mapping[str, Axis], result: Result, target: Tokenizer, trace: bool, prompt: str | None = None
) -> Prediction:
    """``prompt``: what each output was made to begin with."""
    positions = sum(len(axis.labels) for axis in axes.values())
    outputs = tuple(_output(hypothesis, positions, target, prompt) for hypothesis in result.hypotheses)
    return Prediction(source, outputs, dict(axes), result.trace if trace else None)


def empty(source: Raw, error: str | None = None) -> Prediction:
    """Of an input that is empty, or cannot be read."""
    return Prediction(source, (Output("", 0.0, 0.0, (), (), True, None),), error=error)


def with_self_attention(
    prediction: Prediction, result: Result, model: Model, padded: Mapping[str, Padded]
) -> Prediction:
    """With the self-attention behind this very result: the source read again, alone, and each output's tokens."""
    with torch.inference_mode():
        state = model.start(model.encode(dict(padded)), 1)
        outputs = []
        for output, hypothesis in zip(prediction.outputs, result.hypotheses, strict=True):
            tokens = torch.tensor([[BOS, *hypothesis.tokens[:-1]]], device=next(model.parameters()).device)
            looked = model.decoder.self_attention(tokens, state)
            outputs.append(replace(output, self_attention=_of_one(looked)))
        own = _of_one(model.self_attention(dict(padded)))
    return replace(prediction, outputs=tuple(outputs), self_attention=own)


def _output(hypothesis: Hypothesis, positions: int, target: Tokenizer, prompt: str | None) -> Output:
    attention = hypothesis.attention
    text = target.decode(hypothesis.tokens)
    if prompt:  # as it was written, also where the model read <unk>
        text = prompt + text[len(target.decode(target.encode(prompt))) :]
    return Output(
        text,
        hypothesis.score,
        hypothesis.log_prob,
        tuple(target.pieces(hypothesis.tokens)),
        hypothesis.log_probs,
        hypothesis.finished,
        None if attention is None else attention[..., :positions],
    )


def _of_one(weights: Tensor | None) -> np.ndarray | None:
    """The only row of a batch."""
    return None if weights is None else weights[0].float().cpu().numpy()
