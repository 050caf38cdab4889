"""Measure training throughput side by side: Dragoman, a bare PyTorch loop, and the peers whose programs are options.

    python benchmarks/run.py --data DIR --joey PYTHON --eole PROGRAM --hugging-face PYTHON [--only transformer]

Only Dragoman is needed. A peer that is not given is left out, with a message.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import signal
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from training import corpus as corpora
from training import machine, report
from training.contenders import bare, bare_transformer, dragoman, eole, gemm, hugging_face, joey
from training.job import RECURRENT, TITLES, Contender, Job, Shape
from training.rounds import Failed, Measure, measure

from dragoman import __version__

HERE = Path(__file__).parent
OVERHEAD = 14  # seconds to wait, start and warm up


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="a folder with train.en and train.de, or two parallel files",
    )
    parser.add_argument(
        "--languages", nargs=2, default=["en", "de"], metavar="NAME", help="file endings, if not en and de"
    )
    parser.add_argument("--pieces", type=int, default=corpora.PIECES, help="size of the joint vocabulary")
    parser.add_argument("--joey", metavar="PYTHON", help="the Python of an environment with Joey NMT")
    parser.add_argument("--eole", metavar="PROGRAM", help="the program `eole` of an environment with eole")
    parser.add_argument("--hugging-face", metavar="PYTHON", help="the Python of an environment with transformers")
    parser.add_argument(
        "--only", nargs="+", choices=list(TITLES), default=list(TITLES), help="measure these shapes only"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="measured in each round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--wait", type=float, default=30.0, help="seconds to wait for a quiet machine before a round")
    parser.add_argument(
        "--quick", action="store_true", help="one short round, to see that everything runs; nothing is written"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results", help="where the result is written")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.seconds, options.wait = 1, 3.0, 0.0
    return options


def list_contenders(options: argparse.Namespace) -> list[Contender]:
    """Return the contenders that take part, and print why others do not."""
    bare_loops = [module.contender(pages) for module in (bare, bare_transformer) for pages in (False, True)]
    peers: list[Contender] = []
    for name, option, program, builds in (
        ("Joey NMT", "--joey PYTHON", options.joey, _recurrent_and_transformer(joey.contender)),
        ("eole", "--eole PROGRAM", options.eole, _recurrent_and_transformer(eole.contender)),
        ("Hugging Face", "--hugging-face PYTHON", options.hugging_face, [hugging_face.contender]),
    ):
        if not program:
            print(f"{name} is left out: give {option} (benchmarks/README.md says how to install it).")
        elif not Path(program).is_file():
            print(f"{name} is left out: {program}: no such file.")
        else:
            peers += [build(os.path.abspath(program)) for build in builds]
    wide = [dragoman.contender(tied=False)] if peers else []
    everyone = [dragoman.contender(), *bare_loops, *peers, *wide]
    return [contender for contender in everyone if set(contender.shapes) & set(options.only)]


def _recurrent_and_transformer(
    build: Callable[[str, tuple[Shape, ...]], Contender],
) -> list[Callable[[str], Contender]]:
    """Return two builders: a peer's Transformer is a contender of its own, with its own remarks."""
    return [lambda program: build(program, RECURRENT), lambda program: build(program, ("transformer",))]


def read_corpus(options: argparse.Namespace, folder: Path) -> corpora.Corpus:
    """Return the corpus of ``--data``, or a made-up one."""
    if options.data:
        return corpora.prepare(corpora.find(options.data, tuple(options.languages)), folder, options.pieces)
    print("Without --data DIR, made-up text of about the same lengths is used (benchmarks/README.md).")
    return corpora.make_up(folder, size=options.pieces)


def describe_command() -> str:
    """Return the command line without the folders of this machine."""
    shown = [f"…/{Path(word).name}" if "/" in word else word for word in sys.argv[1:]]
    return " ".join(["python benchmarks/run.py", *shown])


def describe_conditions(options: argparse.Namespace, contenders: list[Contender]) -> dict[str, Any]:
    """Return date, machine, versions and rounds: what a figure depends on."""
    versions = {
        "dragoman": __version__,
        "Python": sys.version.split()[0],
        **machine.versions(sys.executable, ["torch"]),
    }
    for peer in contenders:
        if peer.is_peer:
            installed = machine.versions(peer.python, [peer.package, "torch"])
            own, torch = (installed.get(name, "unknown") for name in (peer.package, "torch"))
            versions[peer.package] = f"{own} (torch {torch})"
    return {
        "date": datetime.date.today().isoformat(),
        "command": describe_command(),
        "machine": {"processor": machine.processor(), "cores": os.cpu_count(), "threads": options.threads},
        "versions": versions,
        "rounds": options.rounds,
        "seconds": options.seconds,
    }


def write(folder: Path, result: dict[str, Any], made_up: bool) -> None:
    """Write one JSON file and one page for each shape; the latest result replaces the one before."""
    folder.mkdir(parents=True, exist_ok=True)
    for shape in result["shapes"]:
        path = folder / (f"{shape}-made-up" if made_up else shape)
        part = report.select(result, shape)
        path.with_suffix(".json").write_text(json.dumps(part, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        path.with_suffix(".md").write_text(report.page(part), encoding="utf-8")
        print(f"Written: {path}.md and .json")


Rounds = dict[tuple[Shape, str], list[Measure]]
Failures = dict[tuple[Shape, str], str]


def alternate(options: argparse.Namespace, contenders: list[Contender], folder: Path) -> tuple[Rounds, Failures]:
    """Measure all contenders in turn, round after round, so that slow minutes of the machine affect all alike."""
    rounds: Rounds = defaultdict(list)
    failures: Failures = {}
    for number, shape, contender in itertools.product(
        range(1, options.rounds + 1), options.only, [*contenders, gemm.contender()]
    ):
        if shape not in contender.shapes or (shape, contender.name) in failures:
            continue
        waited = machine.wait_until_quiet(options.wait)
        began = time.perf_counter()
        print(f"round {number}, {shape}, {contender.name}: ", end="", flush=True)
        try:
            result = measure(contender, Job(str(folder), str(folder), shape, options.threads, number), options.seconds)
        except Failed as error:
            failures[shape, contender.name] = str(error)
            print(f"failed\n{error}")
            continue
        rounds[shape, contender.name].append(result)
        unit = "multiply-adds" if contender.name == gemm.NAME else "tokens"
        print(
            f"{result.tokens_per_second:,.0f} {unit}/s, {result.other_cpus} processors used by others"
            f"{' (noisy)' if result.noisy else ''}, waited {waited:.0f} s, took {time.perf_counter() - began:.0f} s"
        )
    return rounds, failures


def main() -> int:
    options = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as with Ctrl-C, the contender is stopped too
    contenders = list_contenders(options)
    with tempfile.TemporaryDirectory() as temporary:
        try:
            corpus = read_corpus(options, Path(temporary))
        except corpora.MissingData as error:
            print(error, file=sys.stderr)
            return 1
        turns = sum(len(set(each.shapes) & set(options.only)) for each in [*contenders, gemm.contender()])
        minutes = options.rounds * turns * (options.seconds + OVERHEAD) / 60
        print(f"{corpus.about}. {turns} turns in each round, about {minutes:.0f} minutes on a quiet machine.")
        rounds, failures = alternate(options, contenders, corpus.folder)
    result = {
        **describe_conditions(options, contenders),
        **report.result(corpus, options.only, contenders, rounds, failures),
    }
    print("\n" + report.page(result))
    if not options.quick:
        write(options.out, result, made_up=not options.data)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
