"""Turn rounds into medians, spreads and ratios, as JSON and as a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import mean, median
from textwrap import wrap
from typing import Any

import numpy as np

from .contenders import gemm
from .corpus import Corpus
from .job import FEED_FORWARD, LAYERS, TITLES, WIDTH, Contender, Shape
from .machine import QUIET
from .rounds import Measure

OWN, WIDE, BARE, BARE_PAGES = "Dragoman", "Dragoman, wide output", "bare loop", "bare loop, keeping pages"


def summary(
    contender: Contender, shape: Shape, rounds: Sequence[Measure], failure: str, corpus: Corpus
) -> dict[str, Any]:
    """Return one contender's row. Noisy rounds count only where there is no quiet one."""
    quiet = [measure for measure in rounds if not measure.noisy]
    rates = [measure.tokens_per_second for measure in quiet or rounds]
    batches = contender.batches(shape, corpus.source_lengths, corpus.target_lengths)
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
            {
                **{key: value if value is None else round(value, 2) for key, value in asdict(measure).items()},
                "noisy": measure.noisy,
            }
            for measure in rounds
        ],
        "target_tokens_a_batch": round(mean(real), 1),
        "target_padding": round(1 - sum(real) / sum(padded), 4),
        "failure": failure,
    }


def ratios(lines: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return how many times as fast Dragoman is as each other contender, by the medians and round by round."""
    measured = {line["name"]: line for line in lines if line["median"]}
    peers = sorted((line for line in measured.values() if line["is_peer"]), key=lambda line: -line["median"])
    pairs = [(OWN, peer["name"]) for peer in peers]
    pairs += [(WIDE, peers[0]["name"])] if peers else []
    pairs += [(OWN, BARE), (OWN, BARE_PAGES)]
    return {
        f"{ours} / {theirs}": {
            "median": round(measured[ours]["median"] / measured[theirs]["median"], 2),
            "rounds": [
                round(mine["tokens_per_second"] / other["tokens_per_second"], 2)
                for mine, other in zip(measured[ours]["rounds"], measured[theirs]["rounds"], strict=False)
            ],
        }
        for ours, theirs in pairs
        if ours in measured and theirs in measured
    }


def multiply_adds(corpus: Corpus) -> float:
    """Return the multiply-adds of the Transformer's matrix products in an update, for each target token.

    Forward, a source position costs 4 d² + 2 d f in every encoder layer and 2 d² (keys, values) in every decoder layer,
    a target position 6 d² + 2 d f in every decoder layer and d V in the output layer, with d the width, f that of the
    feed-forward and V the vocabulary. Backward costs twice as much. Padding is not counted, nor are the products of
    attention itself, a few hundredths of the whole.
    """
    square, wide = WIDTH * WIDTH, 2 * WIDTH * FEED_FORWARD
    source = LAYERS * (4 * square + wide) + LAYERS * 2 * square
    target = LAYERS * (6 * square + wide) + WIDTH * corpus.vocabulary
    return 3 * (source * sum(corpus.source_lengths) / sum(corpus.target_lengths) + target)


def of_machine(lines: Sequence[Mapping[str, Any]], rounds: Sequence[Measure], corpus: Corpus) -> dict[str, Any]:
    """Return the machine's rate of multiply-adds in the same rounds, and the share of it each contender uses."""
    quiet = [measure for measure in rounds if not measure.noisy] or list(rounds)
    rate, work = median(measure.tokens_per_second for measure in quiet), multiply_adds(corpus)
    return {
        "multiply_adds_per_second": round(rate),
        "rounds": [round(measure.tokens_per_second) for measure in rounds],
        "multiply_adds_per_target_token": round(work),
        "shares": {line["name"]: round(line["median"] * work / rate, 3) for line in lines if line["median"]},
    }


def select(result: Mapping[str, Any], shape: Shape) -> dict[str, Any]:
    """Return the result of one shape alone."""
    per_shape = ("shapes", "ratios", "machine_rate")
    parts = {key: {name: value for name, value in result[key].items() if name == shape} for key in per_shape}
    return {**result, **parts}


def page(result: Mapping[str, Any]) -> str:
    """Return the result as Markdown."""
    machine, versions = result["machine"], result["versions"]
    text = [
        f"# Training throughput, {result['date']}",
        "",
        "Real target tokens per second (end symbols counted, padding not) through forward, backward, clipping and "
        "Adam. [The page of the benchmarks](../README.md) says how they are measured.",
        "",
        f"- command: `{result['command']}`",
        f"- machine: {machine['processor']}, {machine['cores']} cores, {machine['threads']} threads used",
        f"- versions: {', '.join(f'{name} {version}' for name, version in versions.items())}",
        f"- text: {result['corpus']['about']}, {result['corpus']['vocabulary']:,} pieces, "
        f"{result['corpus']['target_length']} target tokens in a sentence",
        f"- rounds: {result['rounds']} of {result['seconds']:g} s each, alternating; a round in which other processes "
        f"used more than {QUIET} processors is left out (and marked * if there was no better one)",
    ]
    for shape, lines in result["shapes"].items():
        text += ["", f"## {TITLES[shape]}", ""]
        text += [
            "| | median | least – most | rounds used | tokens per batch | padding | |",
            "|---|--:|--:|--:|--:|--:|---|",
        ]
        text += [_line(line) for line in lines]
        text += [""]
        for name, ratio in result["ratios"][shape].items():
            text.append(f"- {name}: **{ratio['median']:.2f}** (rounds: {', '.join(map(str, ratio['rounds']))})")
        text += [f"- {line['name']} failed: `{line['failure']}`" for line in lines if line["failure"]]
        if shape in result["machine_rate"]:
            text += ["", *_machine_lines(result["machine_rate"][shape])]
    return "\n".join(line for row in text for line in _wrap(row)) + "\n"


def _wrap(row: str) -> list[str]:
    """Wrap prose; tables, headings and blank lines stay as they are."""
    if not row or row[0] in "|#":
        return [row]
    return wrap(
        row, 100, subsequent_indent="  " if row[0] == "-" else "", break_long_words=False, break_on_hyphens=False
    )


def _machine_lines(rate: Mapping[str, Any]) -> list[str]:
    shares = ", ".join(f"{name} **{share:.0%}**" for name, share in rate["shares"].items())
    by_round = ", ".join(f"{round_rate / 1e9:.1f}" for round_rate in rate["rounds"])
    return [
        f"- the machine: {rate['multiply_adds_per_second'] / 1e9:.1f} billion multiply-adds per second in products of "
        f"{gemm.SIZE} × {gemm.SIZE} float32 matrices (rounds: {by_round})",
        f"- training takes {rate['multiply_adds_per_target_token'] / 1e6:.2f} million multiply-adds per target token "
        "(the page of the benchmarks has the formula)",
        f"- share of the machine's rate: {shares}",
    ]


def _line(line: Mapping[str, Any]) -> str:
    if line["median"] is None:
        return f"| {line['name']} | – | – | 0 | – | – | {line['about']} |"
    used = sum(not measure["noisy"] for measure in line["rounds"])
    star = "*" if line["noisy"] else ""
    spread = f"{line['least']:,.0f} – {line['most']:,.0f}"
    return (
        f"| {line['name']} | {line['median']:,.0f}{star} | {spread} | {used} of {len(line['rounds'])} | "
        f"{line['target_tokens_a_batch']:,.0f} | {line['target_padding']:.1%} | {line['about']} |"
    )


def result(
    corpus: Corpus,
    shapes: Sequence[Shape],
    contenders: Sequence[Contender],
    rounds: Mapping[tuple[Shape, str], Sequence[Measure]],
    failures: Mapping[tuple[Shape, str], str],
) -> dict[str, Any]:
    """Return the part of the result that comes from the rounds."""
    lines = {
        shape: [
            summary(
                contender,
                shape,
                rounds.get((shape, contender.name), []),
                failures.get((shape, contender.name), ""),
                corpus,
            )
            for contender in contenders
            if shape in contender.shapes
        ]
        for shape in shapes
    }
    return {
        "corpus": {
            "about": corpus.about,
            "vocabulary": corpus.vocabulary,
            "target_length": round(mean(corpus.target_lengths), 1),
        },
        "shapes": lines,
        "ratios": {shape: ratios(of_shape) for shape, of_shape in lines.items()},
        "machine_rate": {
            shape: of_machine(of_shape, rounds[shape, gemm.NAME], corpus)
            for shape, of_shape in lines.items()
            if rounds.get((shape, gemm.NAME))
        },
    }
