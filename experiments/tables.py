"""Write the page of an experiment: paragraphs wrapped at 100 columns, tables, and what made the results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import Any

WIDTH = 100
LABELS = {
    "exact": "exact match, %",
    "wer": "word errors, %",
    "cer": "character errors, %",
    "bleu": "BLEU",
}
INTERVALS = (
    "In brackets are 95 % intervals by bootstrap. Minutes are for the whole command: reading, training and evaluating."
)


class Block(str):
    """Lines of Markdown that are not wrapped: a table, a list of pictures."""


def page(title: str, *parts: str) -> str:
    """Return a page of paragraphs, lists and tables. An empty part is left out."""
    blocks = [f"# {title}", *(part if isinstance(part, Block) else wrap_prose(part) for part in parts if part)]
    return "\n\n".join(blocks) + "\n"


def wrap_prose(text: str) -> str:
    """Wrap a paragraph, or every item of a list."""
    lines: list[str] = []
    for item in text.split("\n"):
        indent = "  " if item.startswith("- ") else ""
        lines += wrap(item, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Block:
    """Return a table of text cells."""
    lines = [f"| {' | '.join(header)} |", "|---" * len(header) + "|"]
    for row in rows:
        if len(row) != len(header):
            raise ValueError(f"{len(row)} cells in a table of {len(header)} columns: {row}")
        lines.append(f"| {' | '.join(row)} |")
    return Block("\n".join(lines))


def runs_table(
    results: Mapping[str, Mapping[str, Any]], metrics: Sequence[str], published: Mapping[str, str] | None = None
) -> Block:
    """Return a table with a row for each run: scores with their intervals, updates, minutes.

    ``published`` has a published figure for some of the runs.
    """
    header = ["run", *(LABELS[metric] for metric in metrics)]
    header += ["published"] if published else []
    rows = []
    for name, result in results.items():
        row = [name, *(score_with_interval(result, metric) for metric in metrics)]
        row += [published.get(name, "")] if published else []
        rows.append([*row, *effort(result), str(result["threads"])])
    return table([*header, "updates", "minutes", "threads"], rows)


def score_with_interval(result: Mapping[str, Any], metric: str) -> str:
    return f"{result['scores'][metric]:.2f} ({interval(result, metric)})"


def interval(result: Mapping[str, Any], metric: str) -> str:
    low, high = result["intervals"][metric]
    return f"{low:.2f} to {high:.2f}"


def effort(result: Mapping[str, Any]) -> list[str]:
    """Return the updates and the minutes of a result."""
    return [f"{result['updates']:,}", f"{result['whole_seconds'] / 60:.1f}"]


def mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)


def bold(value: float) -> str:
    return f"**{value:.2f}**"


def made_with(result: Mapping[str, Any]) -> str:
    """Return the versions and the machine of a result."""
    return (
        f"Dragoman {result['dragoman']}, torch {result['torch']}, Python {result['python']}, {result['cores']} cores "
        f"of {result['cpu']}"
    )


def origin(result: Mapping[str, Any], name: str, options: str = "") -> str:
    """Return the last paragraph of a page: when, how and on which machine its results were made."""
    command = f"python experiments/{name}/run.py --data FOLDER{' ' * bool(options)}{options}"
    return f"Made on {result['date']} with `{command}`; {made_with(result)}."
