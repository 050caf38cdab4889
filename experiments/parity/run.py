"""Does every engine say what torch says? Train every preset briefly, export it, and compare the outputs.

    python experiments/parity/run.py --runs FOLDER       # make the results that are missing, and the page
    python experiments/parity/run.py --only xu2015 --runs FOLDER
    python experiments/parity/run.py --table             # only write the page, from results.json

Greedy search and a beam of 5 must give torch's tokens, or both outputs' scores by torch lie within 1e-4; these ties are
counted. Otherwise the exit code is 1. numpy, which is slow, is asked fewer inputs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from runner import Result, describe_machine, tell_mistakes
from tables import made_with, page, table

FOLDER = Path(__file__).resolve().parent
ENGINES = ("onnx", "native", "numpy", "ctranslate2")
INPUTS = {"numpy": 20}  # of the others, all


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="folder for data and runs; a run that is there is not trained again")
    parser.add_argument("--only", action="append", default=[], metavar="CASE", help="compare this case again")
    parser.add_argument("--engine", action="append", default=[], choices=ENGINES, help="compare this engine only")
    parser.add_argument("--table", action="store_true", help="only write the page")
    options = parser.parse_args()
    path = FOLDER / "results.json"
    results: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    if not options.table:
        if options.runs is None:
            parser.error("--runs FOLDER is needed, unless only the page is to be written (--table)")
        results = compare_cases(options.runs, options.only, options.engine or list(ENGINES), results, path)
    text = write_page(results)
    print(text)
    (FOLDER / "README.md").write_text(text, encoding="utf-8")
    if any("first" in engine for case in results["cases"].values() for engine in case["engines"].values()):
        sys.exit(1)


def compare_cases(runs: Path, only: list[str], engines: list[str], before: Result, path: Path) -> Result:
    """Compare the cases that have no result, or those that are named, and write the results after each."""
    from parity.cases import CASES

    unknown = [name for name in only if name not in CASES]
    if unknown:
        sys.exit(f"--only {unknown[0]}: there is no such case; there are {', '.join(CASES)}")
    versions = {name: metadata.version(name) for name in ("onnx", "onnxruntime", "ctranslate2")}
    results: Result = {**before, "cases": dict(before.get("cases", {})), **describe_machine(), "versions": versions}
    for name, case in CASES.items():
        if name not in only and (only or name in results["cases"]):
            continue
        began = time.monotonic()
        compared = compare_case(runs / name.replace(" ", "-").replace(",", ""), case, engines)
        earlier = results["cases"].get(name, {}).get("engines", {})
        results["cases"][name] = {**compared, "engines": {**earlier, **compared["engines"]}}
        print(f"{name}: {time.monotonic() - began:.0f} s: {json.dumps(compared)}", flush=True)
        path.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return results


def compare_case(folder: Path, case: Any, engines: list[str]) -> Result:
    """Train one run and compare the engines with it."""
    from parity.makers import MAKERS

    import dragoman
    from dragoman.errors import UserError
    from dragoman.export.parity import answers, measure_parity

    made = case.data(folder / "data")
    training = {"threads": 1, "batch_tokens": 512, "max_updates": case.updates, "validate_every": 10**6, "average": 1}
    own = case.settings.get("training", {})
    system = dragoman.train(
        made.train,
        made.dev,
        out=folder / "run",
        preset=case.preset,
        settings={**case.settings, "training": {**training, "optim": {"learning_rate": 4e-3, "warmup": 20}, **own}},
        device="cpu",
        quiet=True,
    )
    session = system.session(beam=5, n_best=1, **case.search)
    outputs = answers(session, session.prepare_all(made.inputs))
    compared: dict[str, Any] = {}
    for engine in engines:
        inputs = made.inputs[: INPUTS.get(engine, len(made.inputs))]
        try:
            parity, unlike = measure_parity(
                system, MAKERS[engine](system), engine, inputs, own_search=engine == "ctranslate2", **case.search
            )
        except UserError as error:
            compared[engine] = {"refused": str(error)}
            continue
        compared[engine] = parity.to_json()
        if unlike:
            compared[engine]["first"] = [unlike[0].wanted, unlike[0].got]
    return {
        "preset": case.preset,
        "parameters": system.model.parameters_count,
        "inputs": len(made.inputs),
        "distinct": len({each if isinstance(each, str) else each.tokens for each in outputs}),
        "engines": compared,
    }


def write_page(results: Result) -> str:
    """Return the page."""
    cases: Mapping[str, Any] = results["cases"]
    rows = [
        [name, f"{case['distinct']} of {case['inputs']}", *(_cell(case["engines"].get(engine)) for engine in ENGINES)]
        for name, case in cases.items()
    ]
    refusals: dict[str, str] = {}
    for name, case in cases.items():
        for engine, figures in case["engines"].items():
            if "refused" in figures:
                sentence = figures["refused"].partition("; ")[0]
                reason = sentence.partition(": ")[2] or sentence
                refusals[f"{name} ({engine})"] = reason
    packages = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return page(
        "Every engine says what torch says",
        "Every preset and other combinations of parts, trained for some seconds on made-up data at small sizes. Each "
        "engine is asked the same inputs as torch, greedily and with a beam of 5. The cells count the outputs with the "
        "same tokens, of all; ties, other outputs whose score by torch lies within 1e-4; and the greatest difference "
        "of a token's log-probability. The second column says how many of torch's outputs differ from each other. "
        "Outputs of CTranslate2 that differ come from its own rule for the end of a beam ([export]"
        "(../../docs/export.md)): the model is the same, as the log-probabilities show.",
        table(("run", "distinct outputs", *ENGINES), rows),
        "What is refused, and why:" if refusals else "",
        "\n".join(f"- {name}: {reason}" for name, reason in refusals.items()),
        f"Made on {results['date']} with `make parity`; {made_with(results)}; {packages}.",
    )


def _cell(figures: Mapping[str, Any] | None) -> str:
    if figures is None:
        return ""
    if "refused" in figures:
        return "refused"
    total = figures["inputs"] * figures["searches"]
    parts = [f"{figures['equal']} of {total}"]
    if figures["ties"]:
        parts.append(f"{figures['ties']} tie{'s' * (figures['ties'] > 1)}")
    if figures["different"]:
        parts.append(
            f"**{figures['different']} differ**" if not figures["own_search"] else f"{figures['different']} differ"
        )
    return f"{', '.join(parts)} ({figures['worst']:.0e})"


if __name__ == "__main__":
    tell_mistakes(main)
