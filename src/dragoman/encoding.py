"""Examples as tensors: what training reads, and what is measured on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from dragoman.contracts import Modality
from dragoman.data.batching import Column, Encoded, Rows, TensorColumn
from dragoman.data.examples import Example
from dragoman.data.running import RunningText
from dragoman.data.stored import Cache, CacheKind, FileColumn
from dragoman.data.tokenizers import Tokenizer
from dragoman.data.vocabulary import BOS, EOS, PAD
from dragoman.modalities.text import cut_anew
from dragoman.nn.model import Model
from dragoman.nn.positions import Positions

TARGET_STREAM = 1  # of the random numbers that cut texts anew; the sources have the others


def room(model: Model, max_tokens: int, sources: int) -> int:
    """Tokens of a text that training cuts anew: no more than rows may have, and than learned positions are there for,
    of which all texts of a row have their share where they are read as one."""
    learned = [one.most for one in model.modules() if isinstance(one, Positions) and one.table is not None]
    together = model.decoder.reads_source or model.joined is not None
    return min([max_tokens + 1, *learned]) // (1 + sources if together else 1)


def encoded(
    examples: Sequence[Example],
    modalities: Mapping[str, Modality],
    target: Tokenizer,
    cache: CacheKind,
    folder: Path | None = None,
    room: int = 0,
) -> Encoded:
    """``folder``: of the run, where decoded files may be kept. ``room``: tokens of a text that is cut anew, at most."""
    sources: dict[str, Column] = {}
    for index, (name, modality) in enumerate(modalities.items()):
        stream = index if index < TARGET_STREAM else index + 1
        raws = [example.sources[name] for example in examples]
        sources[name] = (
            FileColumn(modality, raws, Cache.of(cache, folder and folder / "cache" / name))
            if modality.is_file
            else TensorColumn(_source_rows(modality, raws, room, stream), modality.collate)
        )
    return Encoded(sources, _target_rows(target, [example.target for example in examples], room), bos=BOS, pad=PAD)


def running(examples: Sequence[Example], target: Tokenizer, chunk: int, carries: bool) -> RunningText:
    """The lines as one text. ``carries``: does the decoder's state go on from chunk to chunk?"""
    lines = [[*target.encode(example.target), EOS] for example in examples]
    return RunningText(lines, chunk=chunk, carries=carries, bos=BOS, eos=EOS, pad=PAD)


def _source_rows(modality: Modality, raws: Sequence[str], room: int, stream: int) -> Rows:
    vary = modality.augmenting(raws) if modality.varies else None
    return Rows([modality.tensor(raw) for raw in raws], vary, room, stream)


def _target_rows(target: Tokenizer, texts: Sequence[str], room: int) -> Rows:
    plain = [torch.tensor([*target.encode(text), EOS]) for text in texts]
    return Rows(plain, cut_anew(target, texts) if target.varies else None, room, TARGET_STREAM)
