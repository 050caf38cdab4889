"""Measure training throughput side by side: Dragoman, a bare PyTorch loop, and the peers whose programs are given.

    python benchmarks/run.py --data DIR --joey PYTHON --eole PROGRAM --hugging-face PYTHON [--only transformer]

Nothing but Dragoman is needed: what is not given is left out, and said.
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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="a folder with train.en and train.de, or two parallel files",
    )
    parser.add_argument("--languages", nargs=2, default=["en", "de"], metavar="NAME", help="other endings than en de")
    parser.add_argument("--pieces", type=int, default=corpora.PIECES, help="size of the joint vocabulary")
    parser.add_argument("--joey", metavar="PYTHON", help="the Python of an environment with Joey NMT")
    parser.add_argument("--eole", metavar="PROGRAM", help="the program `eole` of an environment with eole")
    parser.add_argument("--hugging-face", metavar="PYTHON", help="the Python of an environment with transformers")
    parser.add_argument("--only", nargs="+", choices=list(TITLES), default=list(TITLES), help="some shapes alone")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="measured in each round")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--wait", type=float, default=30.0, help="seconds to wait for a quiet machine before a round")
    parser.add_argument(
        "--quick", action="store_true", help="one short round, to see that all runs; nothing is written"
    )
    parser.add_argument("--out", type=Path, default=HERE / "results", help="where the result is written")
    given = parser.parse_args()
    if given.quick:
        given.rounds, given.seconds, given.wait = 1, 3.0, 0.0
    return given


def field(given: argparse.Namespace) -> list[Contender]:
    """Who takes part; who does not is said."""
    bares = [one.contender(pages) for one in (bare, bare_transformer) for pages in (False, True)]
    peers: list[Contender] = []
    for name, option, program, builds in (
        ("Joey NMT", "--joey PYTHON", given.joey, _both(joey.contender)),
        ("eole", "--eole PROGRAM", given.eole, _both(eole.contender)),
        ("Hugging Face", "--hugging-face PYTHON", given.hugging_face, [hugging_face.contender]),
    ):
        if not program:
            print(f"{name} is left out: give {option} (benchmarks/README.md says how to install it).")
        elif not Path(program).is_file():
            print(f"{name} is left out: {program}: no such file.")
        else:
            peers += [build(os.path.abspath(program)) for build in builds]
    wide = [dragoman.contender(tied=False)] if peers else []
    found = [dragoman.contender(), *bares, *peers, *wide]
    return [one for one in found if set(one.shapes) & set(given.only)]


def _both(build: Callable[[str, tuple[Shape, ...]], Contender]) -> list[Callable[[str], Contender]]:
    """A peer builds another model for the Transformer, and has other things to be said about it."""
    return [lambda program: build(program, RECURRENT), lambda program: build(program, ("transformer",))]


def read_corpus(given: argparse.Namespace, folder: Path) -> corpora.Corpus:
    if given.data:
        return corpora.prepare(corpora.find(given.data, tuple(given.languages)), folder, given.pieces)
    print("No text is given, so made-up text of the same lengths is used: give --data DIR (benchmarks/README.md).")
    return corpora.make_up(folder, size=given.pieces)


def command() -> str:
    """The command as it was given, without the folders of this machine."""
    shown = [f"…/{Path(word).name}" if "/" in word else word for word in sys.argv[1:]]
    return " ".join(["python benchmarks/run.py", *shown])


def surroundings(given: argparse.Namespace, contenders: list[Contender]) -> dict[str, Any]:
    versions = {
        "dragoman": __version__,
        "Python": sys.version.split()[0],
        **machine.versions(sys.executable, ["torch"]),
    }
    for peer in (one for one in contenders if one.is_peer):
        found = machine.versions(peer.python, [peer.package, "torch"])
        versions[peer.package] = f"{found.get(peer.package, 'unknown')} (torch {found.get('torch', 'unknown')})"
    return {
        "date": datetime.date.today().isoformat(),
        "command": command(),
        "machine": {"processor": machine.processor(), "cores": os.cpu_count(), "threads": given.threads},
        "versions": versions,
        "rounds": given.rounds,
        "seconds": given.seconds,
    }


def write(folder: Path, result: dict[str, Any], made_up: bool) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    shapes = [] if list(result["shapes"]) == list(TITLES) else list(result["shapes"])
    path = folder / "-".join(["training", *shapes, result["date"], *(["made-up"] if made_up else [])])
    path.with_suffix(".json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(report.page(result), encoding="utf-8")
    print(f"Written: {path}.md and .json")


Rounds = dict[tuple[Shape, str], list[Measure]]
Failures = dict[tuple[Shape, str], str]


def alternate(given: argparse.Namespace, contenders: list[Contender], folder: Path) -> tuple[Rounds, Failures]:
    """All contenders in turn, and again: what the machine does over time touches all alike."""
    rounds: Rounds = defaultdict(list)
    failures: Failures = {}
    for number, shape, one in itertools.product(
        range(1, given.rounds + 1), given.only, [*contenders, gemm.contender()]
    ):
        if shape not in one.shapes or (shape, one.name) in failures:
            continue
        waited = machine.wait_until_quiet(given.wait)
        began = time.perf_counter()
        print(f"round {number}, {shape}, {one.name}: ", end="", flush=True)
        try:
            heard = measure(one, Job(str(folder), str(folder), shape, given.threads, number), given.seconds)
        except Failed as error:
            failures[shape, one.name] = str(error)
            print(f"failed\n{error}")
            continue
        rounds[shape, one.name].append(heard)
        unit = "multiply-adds" if one.name == gemm.NAME else "tokens"
        print(
            f"{heard.tokens_per_second:,.0f} {unit}/s, {heard.other_cpus} processors used by others"
            f"{' (noisy)' if heard.noisy else ''}, waited {waited:.0f} s, took {time.perf_counter() - began:.0f} s"
        )
    return rounds, failures


def main() -> int:
    given = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C: the contender is stopped too
    contenders = field(given)
    with tempfile.TemporaryDirectory() as temporary:
        try:
            corpus = read_corpus(given, Path(temporary))
        except corpora.MissingData as error:
            print(error, file=sys.stderr)
            return 1
        turns = sum(len(set(one.shapes) & set(given.only)) for one in [*contenders, gemm.contender()])
        minutes = given.rounds * turns * (given.seconds + OVERHEAD) / 60
        print(f"{corpus.about}. {turns} turns a round, about {minutes:.0f} minutes on a quiet machine.")
        rounds, failures = alternate(given, contenders, corpus.folder)
    result = {**surroundings(given, contenders), **report.result(corpus, given.only, contenders, rounds, failures)}
    print("\n" + report.page(result))
    if not given.quick:
        write(given.out, result, made_up=not given.data)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
