"""Run an exported model with CTranslate2, which searches by itself.

CTranslate2 offers no step of a decoder, only whole searches and forced scores. What its search
does otherwise than ``search/`` is written in docs/export.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dragoman.config import TooLong
from dragoman.data.vocabulary import EOS
from dragoman.errors import UserError
from dragoman.files import LARGE, read_json, read_regular
from dragoman.files.reading import parse_json
from dragoman.inference.engine.contract import Arrays, SelfAttention
from dragoman.inference.engine.single import Inputs, SingleEngine
from dragoman.search.options import SearchConfig
from dragoman.search.rows import SearchDecoder
from dragoman.search.run import MakeRules
from dragoman.search.trace import Result
from dragoman.types import Hypothesis, Trace

FOLDER = "ctranslate2"  # of the export, in the folder of the run
MODEL = "model"  # the folder of CTranslate2's own files in that of the export
WEIGHTS = "model.bin"
RECORD = "export.json"
# CTranslate2 leaves its loop at once where the exponent is 0, even if other hypotheses are wanted.
NO_NORMALISATION = 1e-9
# Its beam is refilled when a hypothesis is finished, so it has its first few finished ones earlier than a beam that
# shrinks. It goes on until this many times the beam are finished; with 1 it would miss more of the better outputs.
PATIENCE = 1.4
NO_STEPS = "scores of given outputs, ensembles or language models beside it"


class CTranslate2Engine(SingleEngine):
    """Searches with a model of CTranslate2."""

    name = "ctranslate2"
    has_attention = False
    chunk = None

    def __init__(self, inputs: Inputs, model: Path, threads: int = 1) -> None:
        """``model`` is the folder of CTranslate2's files."""
        super().__init__(inputs)
        module = import_ctranslate2()
        try:
            self._translator = module.Translator(str(model), device="cpu", inter_threads=1, intra_threads=threads)
        except (RuntimeError, ValueError, IndexError, MemoryError) as error:
            raise UserError(f"{model}: CTranslate2 cannot read this model ({error}); export the run again") from None
        self._source, self._target = read_vocabularies(model)
        self._ids = {token: index for index, token in enumerate(self._target)}

    @property
    def device(self) -> torch.device:
        return torch.device("cpu")

    @property
    def decoder(self) -> SearchDecoder:
        raise _without(NO_STEPS)

    def ctc_decoder(self) -> SearchDecoder:
        raise _without("CTC")

    def encode(self, rows: Sequence[Arrays]) -> Any:
        raise _without(NO_STEPS)

    def represent(self, rows: Sequence[Arrays]) -> tuple[np.ndarray, str]:
        raise _without("vectors of its inputs")

    def self_attention(self, row: Arrays, outputs: Sequence[Sequence[int]]) -> SelfAttention:
        raise _without("self-attention")

    def search(
        self,
        rows: Sequence[Arrays],
        config: SearchConfig,
        *,
        limits: Sequence[int],
        prefixes: Sequence[Sequence[int]] | None = None,
        keys: Sequence[int] | None = None,
        attention: bool = False,
        trace: bool = True,
        on_step: Callable[[], None] | None = None,
        on_token: Callable[[int, tuple[int, ...]], None] | None = None,
        further: MakeRules | None = None,
    ) -> list[Result]:
        """Search for the outputs of a batch. ``on_step`` is called once, before the search."""
        if further is not None:
            raise _without("constraints on its outputs")
        check_settings(config, prefixes)
        if on_token is not None:
            raise _without("tokens before the end of a search")
        if on_step is not None:
            on_step()
        (name,) = self.inputs.modalities
        texts = [[self._source[token] for token in row[name][:-1]] for row in rows]  # the end symbol is added
        most = [limit if config.max_length is None else min(limit, config.max_length) for limit in limits]
        options = search_options(config, self._target)
        found = self._translate(texts, max(most), options)
        # All rows share one limit there. A row whose outputs grew beyond its own is searched again.
        longer: dict[int, list[int]] = {}
        for row, outputs in enumerate(found):
            if any(len(tokens) > most[row] for tokens in outputs.hypotheses):
                longer.setdefault(most[row], []).append(row)
        for limit, members in longer.items():
            again = self._translate([texts[row] for row in members], limit, options)
            found = [again[members.index(row)] if row in members else outputs for row, outputs in enumerate(found)]
        ranked = [self._rank(outputs, config) for outputs in found]
        return self._score(texts, ranked, config)

    def _translate(self, texts: Sequence[Sequence[str]], limit: int, options: Mapping[str, Any]) -> list[Any]:
        least = min(limit, options["min_decoding_length"])  # more is an error there
        options = {**options, "max_decoding_length": limit, "min_decoding_length": least}
        try:
            return list(self._translator.translate_batch(texts, **options))
        except RuntimeError as error:
            if "position" in str(error):
                raise TooLong("the input or its output has more positions than the export knows; shorten it") from None
            raise

    def _rank(self, outputs: Any, config: SearchConfig) -> list[tuple[int, ...]]:
        """Return the tokens of the outputs asked for, finished ones first and each kind best first."""
        tokens = [tuple(self._ids[token] for token in each) for each in outputs.hypotheses]
        if config.sample or config.beam == 1:
            return tokens

        def rank(index: int) -> tuple[bool, float]:
            length = len(tokens[index])
            total = outputs.scores[index] * length ** _exponent(config)
            return tokens[index][-1:] != (EOS,), -total / config.penalty(length)

        return [tokens[index] for index in sorted(range(len(tokens)), key=rank)[: config.n_best]]

    def _score(
        self, texts: Sequence[Sequence[str]], outputs: Sequence[Sequence[tuple[int, ...]]], config: SearchConfig
    ) -> list[Result]:
        """Return the outputs with the model's own log-probabilities: those of a search leave out what it forbids."""
        pairs = [(row, tokens) for row, each in enumerate(outputs) for tokens in each]
        targets = [[self._target[token] for token in tokens if token != EOS] for _, tokens in pairs]
        scored = self._translator.score_batch(
            [texts[row] for row, _ in pairs], targets, max_batch_size=64, max_input_length=0
        )
        hypotheses: list[list[Hypothesis]] = [[] for _ in outputs]
        for (row, tokens), each in zip(pairs, scored, strict=True):
            log_probs = tuple(map(float, each.log_probs[: len(tokens)]))
            score = sum(log_probs) / config.penalty(len(tokens))
            hypotheses[row].append(Hypothesis(tokens, log_probs, score, tokens[-1:] == (EOS,), ()))
        if not config.sample:
            hypotheses = [sorted(each, key=lambda output: (not output.finished, -output.score)) for each in hypotheses]
        return [Result(tuple(each), Trace((), ())) for each in hypotheses]


def check_settings(config: SearchConfig, prefixes: Sequence[Sequence[int]] | None) -> None:
    """Refuse what CTranslate2's search does not have."""
    if config.ctc:
        raise _without("CTC")
    if config.only:
        raise _without("classifiers")
    if prefixes is not None:
        raise _without("forced prefixes")
    if config.sample and config.seed:
        raise _without("seed: every draw is a new one")
    if config.stop == "certain" and config.beam > 1 and not config.sample:
        raise _without("stop = certain: its beam ends by a rule of its own")


def search_options(config: SearchConfig, target: Sequence[str]) -> dict[str, Any]:
    """Return search settings as options of ``Translator.translate_batch``."""
    runs = [*((token,) for token in config.forbidden), *(run for run in config.forbidden_runs if run)]
    options: dict[str, Any] = {
        "max_input_length": 0,  # by default longer inputs are cut without a word
        "min_decoding_length": config.min_length,
        "return_end_token": True,  # so that lengths count the end symbol
        "suppress_sequences": [[target[token] for token in run] for run in runs],
        "no_repeat_ngram_size": config.no_repeat_ngram,
    }
    if config.sample:
        return options | {
            "beam_size": 1,
            "num_hypotheses": config.samples,
            "sampling_topk": config.top_k,
            "sampling_topp": config.top_p,
            "sampling_temperature": config.temperature,
        }
    if config.beam == 1:
        return options | {"beam_size": 1}
    # All finished hypotheses are asked for, and ranked here by the run's own normalisation.
    return options | {
        "beam_size": config.beam,
        "patience": PATIENCE,
        "num_hypotheses": round(config.beam * PATIENCE),
        "length_penalty": _exponent(config),
        "return_scores": True,
    }


def _exponent(config: SearchConfig) -> float:
    """Return the power of the length that CTranslate2 divides by. It has no gnmt; the nearest is its alpha."""
    return {"average": 1.0, "none": NO_NORMALISATION, "gnmt": max(config.alpha, NO_NORMALISATION)}[config.normalize]


def _without(what: str) -> UserError:
    return UserError(f"the engine 'ctranslate2' has no {what}; use another engine, such as 'onnx' or 'torch'")


def import_ctranslate2() -> Any:
    """Import CTranslate2, or say which extra has it."""
    try:
        import ctranslate2
    except ImportError:
        raise UserError(
            "the engine 'ctranslate2' needs CTranslate2, which is not installed: pip install 'dragoman[ctranslate2]'"
        ) from None
    return ctranslate2


def read_vocabularies(model: Path) -> tuple[list[str], list[str]]:
    """Return the tokens of both sides, in the order of their ids. CTranslate2 writes one file if they are equal."""
    shared = model / "shared_vocabulary.json"
    if shared.exists():
        tokens = _read_tokens(shared)
        return tokens, tokens
    return _read_tokens(model / "source_vocabulary.json"), _read_tokens(model / "target_vocabulary.json")


def _read_tokens(path: Path) -> list[str]:
    try:
        tokens: Any = parse_json(read_regular(path, LARGE))
    except (ValueError, RecursionError):
        tokens = None
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise UserError(f"{path}: is not a list of tokens; export the run again")
    return tokens


def open_engine(inputs: Inputs, folder: Path) -> CTranslate2Engine:
    """Open an export in a folder, or in the run's folder that it was written to."""
    found = folder / FOLDER if (folder / FOLDER / MODEL / WEIGHTS).exists() else folder
    if not (found / MODEL / WEIGHTS).exists():
        raise UserError(f"{folder}: has no CTranslate2 export; write one: dragoman export {folder} --to ctranslate2")
    _check_files(found)
    return CTranslate2Engine(inputs, found / MODEL)


def _check_files(folder: Path) -> None:
    """Refuse a damaged export: CTranslate2 reads its files itself, and hardly looks at them."""
    digests = read_json(folder / RECORD).get("files")
    if not isinstance(digests, dict):
        raise UserError(f"{folder / RECORD}: does not name the files of the export; export the run again")
    for path in sorted((folder / MODEL).iterdir()):
        if hashlib.sha256(read_regular(path, LARGE)).hexdigest() != digests.get(path.name):
            raise UserError(f"{path}: differs from what the export wrote; export the run again")
