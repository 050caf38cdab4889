"""Write and execute ``examples/notebook.ipynb``: dates written in English to ISO dates, from Python.

    python examples/make_notebook.py            # write, execute and save the notebook (about three minutes)
    python examples/make_notebook.py --check    # execute the notebook that is there, and change nothing

The data is generated, and the notebook runs in a folder of its own, so that its outputs name no place of this machine.
``make docs-test`` executes it again. Needs the extra ``notebook``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
NOTEBOOK = HERE / "notebook.ipynb"
LARGEST = 300_000  # bytes

# Markdown begins with "#"; everything else is code.
CELLS = (
    """# Dragoman in a notebook

Dates in English to ISO dates: check the data, train for a minute, and look inside. Everything here is
described in `docs/python.md`.""",
    """import random
from datetime import date, timedelta

import dragoman

generator = random.Random(1)
rows = []
while len(rows) < 2000:
    day = date(1950, 1, 1) + timedelta(days=generator.randrange(30_000))
    form = generator.choice(["%d %B %Y", "%B %d, %Y", "%d.%m.%Y", "%d %b %y"])
    rows.append((day.strftime(form), day.isoformat()))
for name, some in {"dates.tsv": rows[:1800], "test.tsv": rows[1800:]}.items():
    with open(name, "w", encoding="utf-8") as file:
        file.writelines(f"{source}\\t{target}\\n" for source, target in some)
rows[:3]""",
    "## Check\n\nThe audit counts what was found in the file. It does not need torch.",
    'checked = dragoman.check("dates.tsv")\nchecked.to_pandas()',
    "## Train\n\nThe number of updates is fixed, so the result does not depend on the speed of the machine. The same "
    "call again resumes, and `quiet=True` shows nothing.",
    'settings = {"training.max_updates": 2000}\n'
    'system = dragoman.train("dates.tsv", out="runs/dates", settings=settings, seed=1)\nsystem',
    "## Predict\n\nOne input gives one prediction, which a notebook draws; a list gives a list.",
    'system.predict("03 May 2001")',
    'system.predict(["12 October 1999", "May 04, 2033", "17.08.1961"]).to_pandas()',
    "The search considered other outputs. Its trace has a row for each candidate of each step.",
    'prediction = system.predict("31 Dec 50", beam=3, n_best=3)\n'
    "prediction.trace.to_pandas().query(\"fate != 'pruned'\").tail(6)",
    "Given targets are scored token by token.",
    'system.score("03 May 2001", "2001-05-03"), system.score("03 May 2001", "2001-03-05")',
    "## Measure\n\nScores have 95 % intervals.",
    'report = dragoman.evaluate(system, "test.tsv")\nreport',
    """## When something is wrong

A mistake that you can correct is a `UserError` with a sentence.""",
    'try:\n    system.predict("03 May 2001", beem=3)\nexcept dragoman.UserError as error:\n    print(error)',
)


def make_notebook() -> dict[str, Any]:
    """Return the notebook, without outputs."""
    cells = []
    for number, text in enumerate(CELLS, 1):
        is_text = text.startswith("#") or not any(sign in text for sign in "=(")
        cell: dict[str, Any] = {
            "cell_type": "markdown" if is_text else "code",
            "id": f"cell-{number}",
            "metadata": {},
            "source": text.splitlines(keepends=True),
        }
        cells.append(cell if is_text else cell | {"execution_count": None, "outputs": []})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def execute(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook with the outputs of its cells, executed in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "notebook.ipynb"
        path.write_text(json.dumps(notebook), encoding="utf-8")
        command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--inplace", str(path)]
        subprocess.run(command, check=True, cwd=folder, env=os.environ | {"PYTHONUTF8": "1"})
        executed: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for cell in executed["cells"]:
        cell["metadata"] = {}  # the times of its execution
    executed["metadata"] = notebook["metadata"]
    return executed


def main() -> None:
    parser = argparse.ArgumentParser(description="Write and execute examples/notebook.ipynb.")
    parser.add_argument("--check", action="store_true", help="execute the notebook that is there, and change nothing")
    options = parser.parse_args()
    if options.check:
        execute(json.loads(NOTEBOOK.read_text(encoding="utf-8")))
        return
    notebook = execute(make_notebook())
    text = json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"
    if len(text.encode()) > LARGEST:
        sys.exit(f"the notebook has {len(text.encode()):,} bytes, and at most {LARGEST:,} are wanted")
    NOTEBOOK.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
