"""Who takes part: the engines of Dragoman, CTranslate2 itself, and Hugging Face."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
EARLIER = "An earlier Dragoman"
CHECKED = 50  # inputs that an export is compared on before it takes part
LEFT_OUT = ("model.dragoman", "checkpoint*", "snapshots", "onnx", "ctranslate2", "portable")


@dataclass(frozen=True)
class Contender:
    """One process that decodes."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)  # variables that it has beside the others'


@dataclass(frozen=True)
class Prepared:
    """A run with its exports, the inputs, and the references."""

    contenders: list[Contender]
    references: list[str]
    rows: int
    to_text: Callable[[Any], str]  # of a text, of the ids of tokens, or of their pieces


def prepare(
    run: Path,
    file: Path,
    work: Path,
    rows: int,
    hugging_face: str | None,
    earlier: Path | None,
    is_wanted: Callable[[str], bool],
) -> Prepared:
    """Copy the run, export the copies, and write the inputs as texts, pieces and ids.

    ``earlier``: a checkout of an earlier commit, whose torch engine takes part first. ``is_wanted`` tells by the name
    whether a contender takes part.
    """
    import dragoman
    from dragoman.errors import UserError
    from dragoman.evaluation.reading import read_examples
    from dragoman.export.ctranslate2 import name_tokens
    from dragoman.export.verbs import FORMATS, as_input

    plain, small = work / "run", work / "run-int8"
    for folder in (plain, small):
        shutil.copytree(run, folder, ignore=shutil.ignore_patterns(*LEFT_OUT))
    system = dragoman.load(plain, device="cpu", engine="torch")
    examples = read_examples(system, [str(file)]).examples[:rows]
    texts = [as_input(example) for example in examples]
    session = system.session()
    prepared = session.prepare_all(texts)
    given: dict[str, Any] = {"texts": texts, "limit": max(session.length_limit(each) for each in prepared)}
    (modality,) = system.modalities.values()
    if modality.tokenizer is not None:
        (name,) = system.modalities
        tokens = name_tokens(modality.tokenizer)
        given["ids"] = [[int(token) for token in each.features[name]] for each in prepared]  # type: ignore[union-attr]
        given["pieces"] = [[tokens[token] for token in ids[:-1]] for ids in given["ids"]]  # CTranslate2 adds the end
    inputs = work / "inputs.json"
    inputs.write_text(json.dumps(given), encoding="utf-8")

    def dragoman_worker(name: str, folder: Path, engine: str) -> Contender:
        return Contender(name, (sys.executable, str(HERE / "worker_dragoman.py"), str(folder), engine, str(inputs)))

    contenders = [dragoman_worker("Dragoman, torch", plain, "torch")]
    if earlier is not None:
        before = Contender(f"{EARLIER}, torch", contenders[0].command, {"PYTHONPATH": str(earlier.resolve() / "src")})
        contenders.insert(0, before)
    for to, engine in (("portable", "native"), ("onnx", "onnx"), ("ctranslate2", "ctranslate2")):
        for folder, int8 in ((plain, False), (small, True)):
            suffix = " int8" if int8 else ""
            names = [f"Dragoman, {engine}{suffix}", *([f"CTranslate2{suffix}"] if to == "ctranslate2" else [])]
            if not any(map(is_wanted, names)):
                continue
            if to not in FORMATS:
                print(f"{engine}: this Dragoman has no such engine, left out", flush=True)
                break
            try:
                dragoman.export_run(folder, to, inputs=texts[:CHECKED], int8=int8)
            except UserError as error:
                print(f"{engine}{suffix} takes no part: {error}", flush=True)
                continue
            contenders.append(dragoman_worker(names[0], folder, engine))
            if to == "ctranslate2":
                model = str(folder / "ctranslate2" / "model")
                worker = (sys.executable, str(HERE / "worker_ctranslate2.py"), model, str(inputs))
                contenders.append(Contender(names[1], worker))
    if hugging_face is not None:
        worker = (hugging_face, str(HERE / "worker_hugging_face.py"), str(plain), str(inputs))
        contenders.append(Contender("Hugging Face", worker))
    pieces = {piece: index for index, piece in enumerate(name_tokens(system.target))}

    def to_text(output: str | list[str] | list[int]) -> str:
        if isinstance(output, str):
            return output
        return system.target.decode([pieces[token] if isinstance(token, str) else token for token in output])

    contenders = [each for each in contenders if is_wanted(each.name)]
    return Prepared(contenders, [example.target for example in examples], len(texts), to_text)
