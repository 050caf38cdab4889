"""The statistics that each metric keeps of a row, and how a sum of rows becomes a score."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from dragoman.errors import UserError

CHRF_ORDER, CHRF_BETA = 6, 2  # as sacrebleu's chrF2


@dataclass(frozen=True, slots=True)
class Metric:
    """A name, what it is called in a table, and which way is better."""

    name: str
    label: str
    better: Literal["higher", "lower"]
    unit: str = "%"


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("exact", "exact match", "higher"),  # equal to any of the references
        Metric("ser", "sequence error rate", "lower"),  # 100 - exact
        Metric("cer", "character error rate", "lower"),
        Metric("wer", "word error rate", "lower"),
        Metric("bleu", "BLEU", "higher", unit=""),
        Metric("chrf", "chrF2", "higher", unit=""),
        Metric("perplexity", "perplexity per token", "lower", unit=""),
        Metric("word_perplexity", "perplexity per word", "lower", unit=""),
        Metric("character_perplexity", "perplexity per character", "lower", unit=""),
        Metric("bits_per_character", "bits per character", "lower", unit="bit"),
    )
}


class Counts(NamedTuple):
    """What a metric keeps of each row, and how a sum of rows becomes a score."""

    rows: np.ndarray  # (rows, K)
    score: Callable[[np.ndarray], np.ndarray]  # sums (R, K) -> scores (R,)
    signature: str = ""

    def of(self, chosen: np.ndarray | slice = slice(None)) -> float:
        return float(self.score(self.rows[chosen].sum(axis=0, keepdims=True))[0])


def _ratio(sums: np.ndarray) -> np.ndarray:
    """Column 0 over column 1 in percent; a total of zero counts as one, so that empty references are no crash."""
    return np.asarray(100.0 * sums[:, 0] / np.maximum(sums[:, 1], 1))


def _exact(hypotheses: Sequence[str], references: Sequence[Sequence[str]], wrong: bool) -> Counts:
    hits = [(hypothesis in options) != wrong for hypothesis, options in zip(hypotheses, references, strict=True)]
    return Counts(np.array([(hit, 1) for hit in hits], dtype=np.float64), _ratio)


def words(text: str) -> list[str]:
    """Tokens between spaces (U+0020 only, so that a no-break space stays inside its token)."""
    return [word for word in text.split(" ") if word]


def _edits(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], split: Callable[[str], Sequence[str]]
) -> Counts:
    """Edits and reference length of each row.

    With several references each row is compared with the closest, where "closest" means: those references, one a row,
    whose total edits over total length is lowest. Taking the fewest edits row by row would let an additional, shorter
    reference make the corpus rate worse. The lowest ratio of sums is found by Dinkelbach's (1967) iteration.
    """
    from rapidfuzz.distance import Levenshtein

    options: list[np.ndarray] = []  # (references of the row, 2)
    for hypothesis, texts in zip(hypotheses, references, strict=True):
        tokens = split(hypothesis)
        split_texts = [split(text) for text in texts]
        options.append(np.array([(Levenshtein.distance(tokens, text), len(text)) for text in split_texts], dtype=float))

    def choose(cost: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        return np.array([option[int(cost(option).argmin())] for option in options])

    def rate(rows: np.ndarray) -> float:
        return float(_ratio(rows.sum(axis=0, keepdims=True))[0]) / 100.0

    rows = choose(lambda option: -option[:, 1])  # the longest: if even these are all empty there is nothing to choose
    while True:
        current = rate(rows)
        better = choose(lambda option, current=current: option[:, 0] - current * option[:, 1])  # type: ignore[misc]
        if rate(better) >= current:
            break
        rows = better
    shortest = choose(lambda option: option[:, 1])  # only matters where every row has an empty reference
    return Counts(shortest if rate(shortest) < rate(rows) else rows, _ratio)


def _bleu(hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokenizer: str) -> Counts:
    from sacrebleu.metrics.bleu import BLEU

    sentence = BLEU(tokenize=tokenizer, force=True, effective_order=True)  # effective order: only silences a warning
    scores = [sentence.sentence_score(text, list(refs)) for text, refs in zip(hypotheses, references, strict=True)]
    rows = np.array([(s.sys_len, s.ref_len, *s.counts, *s.totals) for s in scores], dtype=np.float64)

    def score(sums: np.ndarray) -> np.ndarray:
        def one(row: list[int]) -> float:
            return BLEU.compute_bleu(row[2:6], row[6:10], row[0], row[1], smooth_method="exp").score

        # sacrebleu's exp(log(100)) is a hair more than 100
        return np.minimum([one(row) for row in sums.astype(np.int64).tolist()], 100.0)

    corpus = BLEU(tokenize=tokenizer, force=True)
    corpus.num_refs = _reference_count(references)
    return Counts(rows, score, str(corpus.get_signature()))


def _chrf(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Counts:
    """chrF (Popović 2015) as sacrebleu defines it; its counts are not public there, so they are counted here."""
    from sacrebleu.metrics.chrf import CHRF

    def grams(text: str) -> list[Counter[str]]:
        text = "".join(text.split())
        return [Counter(text[i : i + n] for i in range(len(text) - n + 1)) for n in range(1, CHRF_ORDER + 1)]

    def compare(ours: list[Counter[str]], theirs: list[Counter[str]]) -> list[int]:
        row: list[int] = []
        for mine, other in zip(ours, theirs, strict=True):
            matched = sum(min(count, other[gram]) for gram, count in mine.items() if gram in other)
            row += (mine.total() if other else 0, other.total(), matched)
        return row

    def score(sums: np.ndarray) -> np.ndarray:
        made, wanted, matched = (sums[:, i::3] for i in range(3))  # (R, orders) each
        both = (made > 0) & (wanted > 0)
        orders = np.maximum(both.sum(axis=1), 1)
        precision = np.where(both, matched / np.maximum(made, 1), 0).sum(axis=1) / orders
        recall = np.where(both, matched / np.maximum(wanted, 1), 0).sum(axis=1) / orders
        weight = CHRF_BETA**2
        below = weight * precision + recall
        return np.asarray(100.0 * (1 + weight) * precision * recall / np.where(below > 0, below, 1))

    rows = []
    for hypothesis, texts in zip(hypotheses, references, strict=True):
        ours = grams(hypothesis)
        candidates = np.array([compare(ours, grams(text)) for text in texts], dtype=np.float64)
        rows.append(candidates[int(score(candidates).argmax())] if len(texts) > 1 else candidates[0])
    metric = CHRF()
    metric.num_refs = _reference_count(references)
    return Counts(np.array(rows), score, str(metric.get_signature()))


def perplexity(log_probs: Sequence[float], tokens: Sequence[int]) -> Counts:
    def score(sums: np.ndarray) -> np.ndarray:
        return np.asarray(np.exp(np.minimum(-sums[:, 0] / np.maximum(sums[:, 1], 1), 700.0)))  # e^700: still a float

    return Counts(np.column_stack([np.asarray(log_probs, float), np.asarray(tokens, float)]), score)


def bits(log_probs: Sequence[float], units: Sequence[int]) -> Counts:
    def score(sums: np.ndarray) -> np.ndarray:
        return np.asarray(-sums[:, 0] / np.maximum(sums[:, 1], 1) / np.log(2))

    return Counts(np.column_stack([np.asarray(log_probs, float), np.asarray(units, float)]), score)


def _reference_count(references: Sequence[Sequence[str]]) -> int:
    """As sacrebleu writes it in a signature: -1 where rows differ."""
    numbers = {len(options) for options in references}
    return numbers.pop() if len(numbers) == 1 else -1


def bleu_tokenizer(references: Sequence[Sequence[str]]) -> str:
    """sacrebleu's tokeniser for this script: BLEU counts words, and some scripts do not write spaces."""
    names = Counter(
        unicodedata.name(letter, "").partition(" ")[0]
        for options in references
        for letter in options[0]
        if letter.isalpha()
    )
    spaceless = sum(names[script] for script in ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR"))
    if spaceless <= names.total() / 2:
        return "13a"
    return "zh" if names["CJK"] == spaceless else "char"


def counts(
    name: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]], tokenizer: str | None = None
) -> Counts:
    """The statistics of one metric over texts; ``tokenizer`` is sacrebleu's, for BLEU only (default: by script)."""
    if len(hypotheses) != len(references):
        raise UserError(f"{len(hypotheses)} outputs but {len(references)} rows of references; give one output a row")
    if not hypotheses:
        raise UserError("there is nothing to measure: no outputs were given")
    for index, options in enumerate(references):
        if isinstance(options, str) or not options:
            raise UserError(f"row {index + 1}: expected a list with at least one reference, got {options!r}")
    match name:
        case "exact" | "ser":
            return _exact(hypotheses, references, wrong=name == "ser")
        case "cer":
            return _edits(hypotheses, references, lambda text: text)
        case "wer":
            return _edits(hypotheses, references, words)
        case "bleu":
            return _bleu(hypotheses, references, tokenizer or bleu_tokenizer(references))
        case "chrf":
            return _chrf(hypotheses, references)
        case _:
            raise UserError(f"unknown metric {name!r}; choose from: exact, ser, cer, wer, bleu, chrf")


def score(name: str, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """One metric, no interval: what training asks for after each epoch."""
    return counts(name, hypotheses, references).of()
