"""The page of an experiment: what was asked, a table of its runs, and what made them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from campaign import made_with

LABELS = {
    "exact": "exact match, %",
    "wer": "word errors, %",
    "cer": "character errors, %",
    "bleu": "BLEU",
    "accuracy": "accuracy, %",
}


def arguments(about: str, here: Path) -> argparse.ArgumentParser:
    """What every experiment can be asked."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--runs", type=Path, default=Path("runs") / here.name)
    parser.add_argument("--results", type=Path, default=here / "results", help="elsewhere while settings are tried out")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", nargs="*", metavar="NAME", help="some of the runs")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE", help="over the settings, to try out")
    return parser


def options(config: Path | None, settings: Sequence[str]) -> list[str]:
    chosen = [] if config is None else ["--config", str(config)]
    return chosen + [word for setting in settings for word in ("--set", setting)]


def write_page(
    asked: argparse.Namespace,
    here: Path,
    title: str,
    about: Sequence[str],
    found: Mapping[str, dict[str, Any]],
    metrics: Sequence[str],
    beside: Mapping[str, str] | None = None,
    after: Sequence[str] = (),
) -> None:
    """README.md of the experiment, and the same on the terminal. ``beside``: a published figure a run."""
    heads = ["run", *(LABELS[name] for name in metrics)] + (["published"] if beside else [])
    lines = [f"# {title}", "", *about, "", f"| {' | '.join([*heads, 'updates', 'minutes', 'threads'])} |"]
    lines.append("|---" * (len(heads) + 3) + "|")
    for name, result in found.items():
        cells = [name]
        for metric in metrics:
            low, high = result["intervals"][metric]
            cells.append(f"{result['scores'][metric]:.2f} ({low:.2f} to {high:.2f})")
        cells += [beside.get(name, "")] if beside else []
        cells += [f"{result['updates']:,}", f"{result['whole_seconds'] / 60:.1f}", str(result["threads"])]
        lines.append(f"| {' | '.join(cells)} |")
    any_result = next(iter(found.values()))
    lines += [
        "",
        "In brackets 95 % intervals by bootstrap. Minutes are for the whole command: reading, training, measuring.",
        "",
        *after,
        *([""] if after else []),
        f"Made on {any_result['date']} with `python experiments/{here.name}/run.py --data FOLDER`; {made_with(any_result)}.",
        "",
    ]
    page = "\n".join(lines)
    print(page)
    if asked.results == here / "results":
        (here / "README.md").write_text(page)
