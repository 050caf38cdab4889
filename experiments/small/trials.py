"""Try settings on small data: inflection with 100 or 1,000 training rows in three languages, measured on dev alone.

    python experiments/small/trials.py NAME --data FOLDER --level low [--only german …] [--set KEY=VALUE …]

FOLDER is that of experiments/inflection. One trial is one training with one seed for each language; its result is one
line of trials.jsonl. A trial whose name, level and language are there already is skipped.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from datasets import inflections, lines, write
from runner import describe_machine

LANGUAGES = ("german", "finnish", "turkish")
HERE = Path(__file__).resolve().parent


def read_rows(path: Path, form: str) -> list[tuple[str, ...]]:
    """Read the rows of a file. ``form``: symbols between spaces, or plain letters after their tags."""
    if form == "symbols":
        return [tuple(row) for row in inflections(path)]
    cells = (line.split("\t") for line in lines(path))
    return [("".join(f"<{tag}>" for tag in tags.split(";")) + lemma, form_) for lemma, form_, tags in cells]


def run(options: argparse.Namespace, language: str) -> dict[str, object]:
    from dragoman.training.events import Evaluated, Event, Stopped
    from dragoman.training.run import train

    folder = options.runs / f"{options.name}.{options.level}.{language}"
    sides = {"train": f"train-{options.level}", "dev": "dev"}
    files = {
        side: write(read_rows(options.data / f"{language}.{name}.tsv", options.form), Path(f"{folder}.{side}.tsv"))
        for side, name in sides.items()
    }
    events: list[Event] = []
    began = time.monotonic()
    train(
        files["train"],
        files["dev"],
        out=folder,
        settings=["training.threads=1", "data.header=no", *options.set],
        evaluate_on="dev",
        on_event=events.append,
    )
    report = next(event.report for event in events if isinstance(event, Evaluated))
    stopped = next(event for event in events if isinstance(event, Stopped))
    return {
        "trial": options.name,
        "level": options.level,
        "language": language,
        "dev": round(report.scores["exact"].value, 1),
        "updates": stopped.update,
        "seconds": round(time.monotonic() - began),
        "options": options.set,
        "form": options.form,
        **describe_machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/small"))
    parser.add_argument("--level", choices=("low", "medium", "high"), default="low")
    parser.add_argument("--only", nargs="*", default=LANGUAGES)
    parser.add_argument("--form", choices=("symbols", "letters"), default="symbols")
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--results", type=Path, default=HERE / "trials.jsonl")
    options = parser.parse_args()
    options.runs.mkdir(parents=True, exist_ok=True)
    known = [json.loads(line) for line in lines(options.results)] if options.results.exists() else []
    done = {(each["trial"], each["level"], each["language"]) for each in known}
    for language in options.only:
        if (options.name, options.level, language) not in done:
            result = run(options, language)
            with open(options.results, "a", encoding="utf-8") as file:
                file.write(json.dumps(result, ensure_ascii=False) + "\n")
            print(result["trial"], result["level"], language, result["dev"], result["updates"], result["seconds"])


if __name__ == "__main__":
    main()
