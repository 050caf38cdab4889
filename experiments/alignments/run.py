"""Are alignments right where the right answer is known? Copied and reversed words, letters with one sound, tones.

    python experiments/alignments/run.py copies                       # trains a model for each task and decoder
    python experiments/alignments/run.py letters --run RUN --file FILE [--words 200]
    python experiments/alignments/run.py tones --run RUN --data FOLDER
    python experiments/alignments/run.py --table                      # only write the page, from results.json

``letters``: a run from French spelling to sound, and a table of words. ``tones``: a run of examples/tones, and the
folder that its make.py wrote. The exit code is 1 if a result is below its goal.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from runner import Result, describe_machine, tell_mistakes
from tables import Block, page, table

FOLDER = Path(__file__).resolve().parent
RESULTS = FOLDER / "results.json"
GOALS = {"copies": 0.99, "letters": 0.95, "tones": 0.98}

# French letters that nearly always have one sound, where they have any.
SOUNDS = {letter: letter for letter in "abdfiklmnoptvz"} | {"r": "ʁ", "j": "ʒ", "é": "e"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=list(GOALS))
    parser.add_argument("--run", type=Path)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--words", type=int, default=200)
    parser.add_argument("--table", action="store_true", help="only write the page")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    if not options.table:
        needed = {"copies": (), "letters": (options.run, options.file), "tones": (options.run, options.data)}
        if options.what is None or any(each is None for each in needed[options.what]):
            parser.error("say what to measure, with --run and --file (letters) or --data (tones)")
        if options.what == "copies":
            measured = measure_copies()
        elif options.what == "letters":
            measured = measure_letters(options.run, options.file, options.words)
        else:
            measured = measure_tones(options.run, options.data)
        results[options.what] = {**measured, "goal": GOALS[options.what], "machine": describe_machine()}
        RESULTS.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    text = write_page(results)
    print(text)
    (FOLDER / "README.md").write_text(text, encoding="utf-8")
    if any(result["right"] < result["goal"] * result["links"] for result in results.values()):
        sys.exit(1)


def measure_copies() -> Result:
    """Train on all words of five letters of length two to four, and align a tenth that was held out."""
    import dragoman

    words = ["".join(letters) for length in (2, 3, 4) for letters in itertools.product("abcde", repeat=length)]
    random.Random(1).shuffle(words)
    unseen, seen = words[:80], words[80:]
    rnn = {"kind": "rnn", "cell": "gru", "width": 64, "embedding": 32, "dropout": 0.0}
    transformer = {"kind": "transformer", "width": 64, "embedding": 64, "layers": 2, "heads": 4, "feed_forward": 128}
    decoders = {
        "recurrent, before": {**rnn, "timing": "before"},
        "recurrent, after": {**rnn, "timing": "after", "attention": {"kind": "bilinear"}},
        "convolutional": {"kind": "conv", "width": 64, "embedding": 64, "layers": 2, "dropout": 0.0},
        "Transformer": {**transformer, "dropout": 0.0},
    }
    rows: list[dict[str, Any]] = []
    for (name, decoder), task in itertools.product(decoders.items(), ("copy", "reverse")):
        with tempfile.TemporaryDirectory() as folder:
            pairs = Path(folder) / "train.tsv"
            pairs.write_text("".join(f"{word}\t{turn(word, task)}\n" for word in seen), encoding="utf-8")
            dev = Path(folder) / "dev.tsv"
            dev.write_text("".join(f"{word}\t{turn(word, task)}\n" for word in seen[:100]), encoding="utf-8")
            optim = {"learning_rate": 5e-3, "schedule": "cosine", "warmup": 20}
            training = {
                "batch_tokens": 256, "max_epochs": None, "max_updates": 400, "validate_every": 400, "average": 1,
                "label_smoothing": 0.0, "threads": 1, "optim": optim,
            }  # fmt: skip
            settings = {
                "source": {"embedding": 32, "dropout": 0.0, "tokenizer": {"kind": "characters"}},
                "target": {"tokenizer": {"kind": "characters"}},
                "encoder": {"kind": "rnn", "cell": "gru", "width": 32, "dropout": 0.0},
                "decoder": decoder,
                "training": training,
            }
            system = dragoman.train(pairs, dev, out=Path(folder) / "run", settings=settings)
            right = links = outputs = 0
            for found in system.predict(unseen, alignments=True):
                word = str(found.source)
                if found.text != turn(word, task):
                    continue
                outputs += 1
                links += len(word)
                right += sum(
                    link.source == (link.target if task == "copy" else len(word) - 1 - link.target)
                    for link in found.alignment.links
                )
            maps = system.alignment_choice.maps
            rows.append(
                {"decoder": name, "task": task, "outputs": outputs, "right": right, "links": links, "maps": maps}
            )
            print(rows[-1], file=sys.stderr)
    return {"rows": rows, "right": sum(row["right"] for row in rows), "links": sum(row["links"] for row in rows)}


def turn(word: str, task: str) -> str:
    """Return the right output for a word."""
    return word if task == "copy" else word[::-1]


def measure_letters(run: Path, file: Path, count: int) -> Result:
    """Align words with their sounds, and count the links of letters that are in a word once, as is their sound."""
    import dragoman

    system = dragoman.load(run)
    words = list(dict.fromkeys(line.split("\t")[0] for line in file.read_text(encoding="utf-8").splitlines()))[:count]
    right, wrong, known = 0, [], 0
    for found in system.predict(words, alignments=True):
        word, sounds = str(found.source), found.text.split()
        links = {(link.source, link.target) for link in found.alignment.links}
        for letter, sound in SOUNDS.items():
            if word.count(letter) == 1 and sounds.count(sound) == 1:
                known += 1
                is_right = (word.index(letter), sounds.index(sound)) in links
                right += is_right
                wrong += [] if is_right else [f"{word} → {found.text}: {letter}"]
    return {
        "words": len(words),
        "right": right,
        "links": known,
        "wrong": wrong,
        "chosen": system.alignment_choice.to_text(),
    }


def measure_tones(run: Path, data: Path) -> Result:
    """Time the digits of dev and test, and count those whose middle is inside the tone of the digit."""
    import dragoman

    system = dragoman.load(run)
    tones: dict[str, list[tuple[str, float, float]]] = defaultdict(list)
    for line in (data / "times.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        name, digit, *times = line.split("\t")
        tones[name].append((digit, float(times[0]), float(times[1])))
    names = [name for name in tones if not name.startswith("train")]
    right = digits = outputs = 0
    predictions = system.predict([str(data / name) for name in names], alignments=True)
    for name, found in zip(names, predictions, strict=True):
        if found.text != "".join(digit for digit, _, _ in tones[name]):
            continue
        outputs += 1
        for unit, (_, begin, end) in zip(found.timings.units, tones[name], strict=True):
            digits += 1
            right += begin <= (unit.begin + unit.end) / 2 <= end
    made_from = predictions[0].timings.made_from
    return {"recordings": len(names), "outputs": outputs, "right": right, "links": digits, "from": made_from}


def write_page(results: dict[str, Result]) -> str:
    """Return the page."""
    parts = []
    if found := results.get("copies"):
        rows = [
            [row["decoder"], row["task"], str(row["outputs"]), f"{100 * row['right'] / row['links']:.1f}",
             ", ".join(map(str, row["maps"])) or "all"] for row in found["rows"]
        ]  # fmt: skip
        parts += [
            Block("## Words copied and reversed"),
            "All words of two to four letters out of five; 80 of them are held out and aligned. The alignment is that "
            "of the places. Outputs that are wrong are left out.",
            table(["decoder", "task", "right outputs of 80", "% of links right", "maps"], rows),
            _summary(found, "links"),
        ]
    if found := results.get("letters"):
        parts += [
            Block("## French letters and sounds"),
            f"{found['words']} words. The rule knows letters that have one sound ({' '.join(SOUNDS)}), if letter and "
            f"sound are in the word once. The run says: {found['chosen']}.",
            _summary(found, "links that the rule knows"),
            "Wrong by the rule: " + "; ".join(f"`{each}`" for each in found["wrong"]) if found["wrong"] else "",
        ]
    if found := results.get("tones"):
        parts += [
            Block("## Dialled tones"),
            f"The recordings of dev and test of `examples/tones`: {found['outputs']} of {found['recordings']} numbers "
            f"were recognised, and their digits are timed by {found['from'].upper()}. A digit is right if the middle "
            "of its time is inside its tone.",
            _summary(found, "digits"),
        ]
    command = "`python experiments/alignments/run.py WHAT`, WHAT being copies, letters or tones"
    return page("Alignments where the right one is known", f"Made with {command}.", *parts)


def _summary(found: Result, what: str) -> str:
    machine = found["machine"]
    share = 100 * found["right"] / found["links"]
    return (
        f"**{found['right']:,} of {found['links']:,} {what} are right: {share:.1f} %** (goal: "
        f"{100 * found['goal']:.0f} %). Made on {machine['date']}; "
        f"Dragoman {machine['dragoman']}, torch {machine['torch']}, {machine['cores']} cores of {machine['cpu']}."
    )


if __name__ == "__main__":
    tell_mistakes(main)
