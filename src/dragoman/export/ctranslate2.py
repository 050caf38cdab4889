"""Export a run to CTranslate2: its own files, those that describe the run, and the figures of the check.

model/           what CTranslate2 loads: model.bin, config.json, vocabularies
export.json      what was compared with the run, and the figures
config.json, *.tokenizer.json, …    those of the run: how texts become tokens
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dragoman import __version__
from dragoman.data.tokenizers import Tokenizer
from dragoman.export.ctranslate2_spec import POSITIONS, check_shape, make_spec, refuse
from dragoman.export.parity import Parity, check_parity
from dragoman.files import write_atomically, write_json
from dragoman.inference.engine.ctranslate2 import MODEL, RECORD, CTranslate2Engine, import_ctranslate2
from dragoman.inference.system import System


def export_ctranslate2(system: System, folder: Path, inputs: Sequence[Any], *, int8: bool = False) -> Parity:
    """Write the export into a folder, after it has given the run's answers on ``inputs``."""
    import_ctranslate2()
    program = system.model.lower()
    check_shape(program)
    if system.classes:
        raise refuse("it is a classifier, whose outputs are limited to its classes")
    if system.recipe.search.ctc:
        raise refuse("CTC takes part in its search (search.ctc)")
    with tempfile.TemporaryDirectory() as place:
        model = Path(place) / MODEL
        write_model(system, program, model, int8)
        engine = CTranslate2Engine(system.inputs, model)
        parity = check_parity(system, engine, "CTranslate2", inputs, quantized=int8, own_search=True)
        (folder / MODEL).mkdir(parents=True, exist_ok=True)
        system.save_setup(folder)
        digests = {}
        for path in sorted(model.iterdir()):
            data = path.read_bytes()
            digests[path.name] = hashlib.sha256(data).hexdigest()
            write_atomically(folder / MODEL / path.name, data)
    record = {
        "format": "ctranslate2",
        "version": __version__,
        "ctranslate2": import_ctranslate2().__version__,
        "int8": int8,
        "files": digests,
        "parity": parity.to_json(),
    }
    write_json(folder / RECORD, record)
    return parity


def write_model(system: System, program: Any, folder: Path, int8: bool) -> None:
    """Write the files of CTranslate2."""
    (modality,) = system.modalities.values()
    assert modality.tokenizer is not None  # the program reads tokens
    source, target = name_tokens(modality.tokenizer), name_tokens(system.target)
    spec = make_spec(program, source, target, max(POSITIONS, system.lengths.most + 1))
    spec.validate()
    spec.optimize(quantization="int8" if int8 else None)
    folder.mkdir()
    spec.save(str(folder))


def name_tokens(tokenizer: Tokenizer) -> list[str]:
    """Return the tokens as CTranslate2 knows them: their strings, with a number where one would occur twice."""
    names: dict[str, None] = {}
    for index, piece in enumerate(tokenizer.pieces(range(tokenizer.size))):
        name = piece if piece and piece not in names else f"{piece}#{index}"
        while name in names:
            name += "#"
        names[name] = None
    return list(names)
