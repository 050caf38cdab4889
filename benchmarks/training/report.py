"""Rounds → medians, spreads and ratios, as JSON and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import mean, median
from typing import Any

import numpy as np

from .corpus import Corpus
from .job import TITLES, Contender, Timing
from .machine import QUIET
from .rounds import Measure

OWN, WIDE, BARE, BARE_PAGES = "Dragoman", "Dragoman, wide output", "bare loop", "bare loop, keeping pages"


def summary(contender: Contender, rounds: Sequence[Measure], failure: str, corpus: Corpus) -> dict[str, Any]:
    """One contender's line. Noisy rounds count only where there is no quiet one."""
    quiet = [one for one in rounds if not one.noisy]
    rates = [one.tokens_per_second for one in quiet or rounds]
    batches = contender.batches(corpus.source_lengths, corpus.target_lengths)
    lengths = np.asarray(corpus.target_lengths)
    real = [int(lengths[rows].sum()) for rows in batches]
    padded = [int(lengths[rows].max()) * len(rows) for rows in batches]
    return {
        "name": contender.name,
        "about": contender.about,
        "is_peer": contender.is_peer,
        "median": round(median(rates), 1) if rates else None,
        "least": round(min(rates), 1) if rates else None,
        "most": round(max(rates), 1) if rates else None,
        "noisy": bool(rounds) and not quiet,
        "rounds": [
            {**{key: round(v, 2) if v is not None else v for key, v in asdict(one).items()}, "noisy": one.noisy}
            for one in rounds
        ],
        "target_tokens_a_batch": round(mean(real), 1),
        "target_padding": round(1 - sum(real) / sum(padded), 4),
        "failure": failure,
    }


def ratios(lines: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What is asked of the figures: how many times as fast."""
    rate = {line["name"]: line["median"] for line in lines if line["median"]}
    peers = {line["name"]: line["median"] for line in lines if line["is_peer"] and line["median"]}
    pairs = [(OWN, BARE), (OWN, BARE_PAGES)]
    if peers:
        best = max(peers, key=lambda name: peers[name])
        pairs = [(OWN, best), (WIDE, best), *pairs]
    return {f"{one} / {two}": round(rate[one] / rate[two], 2) for one, two in pairs if one in rate and two in rate}


def page(result: Mapping[str, Any]) -> str:
    """The result as Markdown."""
    machine, versions = result["machine"], result["versions"]
    text = [
        f"# Training throughput, {result['date']}",
        "",
        "Real target tokens a second (end symbols counted, padding not) of forward, backward, clipping and Adam; "
        "how they come about is in [the benchmarks' page](../README.md).",
        "",
        f"- command: `{result['command']}`",
        f"- machine: {machine['processor']}, {machine['cores']} cores, {machine['threads']} threads used",
        f"- versions: {', '.join(f'{name} {version}' for name, version in versions.items())}",
        f"- text: {result['corpus']['about']}, {result['corpus']['vocabulary']:,} pieces, "
        f"{result['corpus']['target_length']} target tokens a sentence",
        f"- rounds: {result['rounds']} of {result['seconds']:g} s each, alternating; others used at most {QUIET} "
        "processors, or the round is left out (and marked * if there was no better one)",
    ]
    for timing, lines in result["timings"].items():
        text += ["", f"## {TITLES[timing]}", ""]
        text += [
            "| | median | least – most | rounds used | tokens a batch | padding | |",
            "|---|--:|--:|--:|--:|--:|---|",
        ]
        text += [_line(line) for line in lines]
        text += ["", *(f"- {name}: **{value:.2f}**" for name, value in result["ratios"][timing].items())]
        text += [f"- {line['name']} failed: `{line['failure']}`" for line in lines if line["failure"]]
    return "\n".join(text) + "\n"


def _line(line: Mapping[str, Any]) -> str:
    if line["median"] is None:
        return f"| {line['name']} | – | – | 0 | – | – | {line['about']} |"
    used = sum(not one["noisy"] for one in line["rounds"])
    star = "*" if line["noisy"] else ""
    spread = f"{line['least']:,.0f} – {line['most']:,.0f}"
    return (
        f"| {line['name']} | {line['median']:,.0f}{star} | {spread} | {used} of {len(line['rounds'])} | "
        f"{line['target_tokens_a_batch']:,.0f} | {line['target_padding']:.1%} | {line['about']} |"
    )


def result(
    corpus: Corpus,
    timings: Sequence[Timing],
    contenders: Sequence[Contender],
    rounds: Mapping[tuple[Timing, str], Sequence[Measure]],
    failures: Mapping[tuple[Timing, str], str],
) -> dict[str, Any]:
    """The part of the result that comes from the rounds."""
    lines = {
        timing: [
            summary(one, rounds.get((timing, one.name), []), failures.get((timing, one.name), ""), corpus)
            for one in contenders
        ]
        for timing in timings
    }
    return {
        "corpus": {
            "about": corpus.about,
            "vocabulary": corpus.vocabulary,
            "target_length": round(mean(corpus.target_lengths), 1),
        },
        "timings": lines,
        "ratios": {timing: ratios(of_timing) for timing, of_timing in lines.items()},
    }
