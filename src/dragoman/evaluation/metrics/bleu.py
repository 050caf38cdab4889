"""BLEU (Papineni et al. 2002) as sacrebleu computes it."""

from __future__ import annotations

import unicodedata
from collections import Counter

import numpy as np

from dragoman.evaluation.metrics.metric import Outputs, References, Statistics

# Scripts that are written without spaces between words, as Unicode names of characters begin.
SPACELESS = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")


def bleu(outputs: Outputs, references: References, tokenizer: str | None = None) -> Statistics:
    """Count matched n-grams and lengths; by default with sacrebleu's tokenizer for the script."""
    from sacrebleu.metrics.bleu import BLEU

    tokenizer = tokenizer or bleu_tokenizer(references)
    sentence = BLEU(tokenize=tokenizer, force=True, effective_order=True)  # effective order: only silences a warning
    scores = [sentence.sentence_score(text, list(options)) for text, options in zip(outputs, references, strict=True)]
    rows = np.array([(s.sys_len, s.ref_len, *s.counts, *s.totals) for s in scores], dtype=np.float64)

    def score(sums: np.ndarray) -> np.ndarray:
        scores = [
            BLEU.compute_bleu(row[2:6], row[6:10], row[0], row[1], smooth_method="exp").score
            for row in sums.astype(np.int64).tolist()
        ]
        return np.minimum(scores, 100.0)  # sacrebleu's exp(log(100)) is a hair more than 100

    corpus = BLEU(tokenize=tokenizer, force=True)
    corpus.num_refs = count_references(references)
    return Statistics(rows, score, str(corpus.get_signature()))


def bleu_tokenizer(references: References) -> str:
    """Return the name of sacrebleu's tokenizer that finds words in the script of the references."""
    scripts = Counter(
        unicodedata.name(letter, "").partition(" ")[0]
        for options in references
        for letter in options[0]
        if letter.isalpha()
    )
    spaceless = sum(scripts[script] for script in SPACELESS)
    if spaceless <= scripts.total() / 2:
        return "13a"
    return "zh" if scripts["CJK"] == spaceless else "char"


def count_references(references: References) -> int:
    """Return the number of references per row for sacrebleu's signature: -1 where rows differ."""
    numbers = {len(options) for options in references}
    return numbers.pop() if len(numbers) == 1 else -1
