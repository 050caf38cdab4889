"""The tokens of an output with their probabilities, and unknown or rare tokens of a source."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dragoman.data.tokenizers import Tokenizer
from dragoman.data.vocabulary import EOS, SPECIALS
from dragoman.inference.scoring import ForcedPath
from dragoman.inference.session import Session
from dragoman.inference.system import System
from dragoman.search.rules import build_rules, permitted
from dragoman.studio import records

RARE_BELOW = 5  # a token is rare if training saw it fewer times than this


def describe_tokens(system: System, path: ForcedPath, forced: int = 0) -> list[records.Token]:
    """Describe the tokens of an output, each with its alternatives.

    The first ``forced`` of them were given, not chosen by the search.
    """
    tokens = []
    for index, (token, text) in enumerate(zip(path.tokens, system.target.pieces(path.tokens), strict=True)):
        ids = path.alternatives[index].tolist()
        log_probs = path.alternative_log_probs[index].tolist()
        alternatives = [
            records.Alternative(id=other, text=piece, log_prob=log_prob, probability=shown)
            for other, piece, log_prob, shown in zip(
                ids, system.target.pieces(ids), log_probs, path.alternative_probabilities[index].tolist(), strict=True
            )
            if log_prob > -np.inf
        ]
        log_prob = float(path.log_probs[index])
        tokens.append(
            records.Token(
                id=token,
                text=text,
                log_prob=log_prob if log_prob > -np.inf else None,
                probability=float(path.probabilities[index]),
                entropy=float(path.entropy[index]),
                rank=int(path.rank[index]),
                alternatives=alternatives,
                forced=index < forced,
            )
        )
    return tokens


def permitted_mask(session: Session, prefix: Sequence[int]) -> np.ndarray:
    """Return which tokens no rule of the search forbids after ``prefix``, (V,)."""
    return permitted(build_rules(session.config, EOS), prefix, session.system.target.size)


def source_tokenizers(system: System) -> dict[str, Tokenizer]:
    """Return the tokenizers of the sources that are text, by source."""
    tokenizers = {name: modality.tokenizer for name, modality in system.modalities.items()}
    return {name: tokenizer for name, tokenizer in tokenizers.items() if tokenizer is not None}


def unknown_words(tokenizer: Tokenizer, text: str) -> list[str]:
    """Return the distinct words of a text that the tokenizer cannot encode.

    In a text without spaces they are characters.
    """
    if not tokenizer.unknown(text):
        return []
    units = text.split() if " " in text or tokenizer.splits_at_spaces else list(text)
    return list(dict.fromkeys(unit for unit in units if tokenizer.unknown(unit)))


def rare_tokens(tokenizer: Tokenizer, text: str) -> list[str]:
    """Return the distinct tokens of a text that training saw fewer than ``RARE_BELOW`` times.

    There are none if the tokenizer has no counts, such as one that was learnt elsewhere.
    """
    counts = tokenizer.counts
    if not any(counts[len(SPECIALS) :]):
        return []
    ids = [token for token in tokenizer.encode(text) if token >= len(SPECIALS) and counts[token] < RARE_BELOW]
    return list(dict.fromkeys(tokenizer.pieces(ids)))
