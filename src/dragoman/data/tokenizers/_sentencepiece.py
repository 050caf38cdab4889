"""The settings inside a sentencepiece model, read without protobuf's library."""

from __future__ import annotations

from typing import Literal

from dragoman.errors import UserError

# Field numbers of sentencepiece_model.proto, and the value that a field has if it is absent.
_TRAINER, _NORMALIZER = 2, 3
_MODEL_TYPE, _BYTE_FALLBACK = 3, 35
_RULES, _DUMMY_PREFIX, _REMOVE_SPACES, _ESCAPE_SPACES = 2, 3, 4, 5


def check_settings(model: bytes) -> Literal["bpe", "unigram"]:
    """Return the method of a model, whose normalisation must be the one that subwords are learnt with.

    Raises UserError for a model that reads text in another way.
    """
    try:
        whole = _fields(model)
        trainer, normalizer = _fields(_bytes(whole, _TRAINER)), _fields(_bytes(whole, _NORMALIZER))
    except IndexError:
        raise UserError("the sentencepiece model of the subwords is cut off; train again") from None
    settings = [
        normalizer.get(_DUMMY_PREFIX, 1) == 0,
        normalizer.get(_REMOVE_SPACES, 1) == 0,
        normalizer.get(_ESCAPE_SPACES, 1) == 1,
        not normalizer.get(_RULES, b""),
        trainer.get(_BYTE_FALLBACK, 0) == 1,
    ]
    if not all(settings):
        raise UserError("the sentencepiece model of the subwords has its own normalisation; train again")
    kind = trainer.get(_MODEL_TYPE, 1)
    if kind not in (1, 2):
        raise UserError("the sentencepiece model of the subwords is neither BPE nor unigram; train again")
    return "unigram" if kind == 1 else "bpe"


def _bytes(fields: dict[int, int | bytes], number: int) -> bytes:
    value = fields.get(number, b"")
    return value if isinstance(value, bytes) else b""


def _fields(message: bytes) -> dict[int, int | bytes]:
    """Return the fields of a message of protocol buffers by their numbers; of a repeated one, the last."""
    fields: dict[int, int | bytes] = {}
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        wire = key & 7
        value: int | bytes
        if wire == 0:
            value, at = _varint(message, at)
        else:
            size, at = {1: (8, at), 5: (4, at)}.get(wire) or _varint(message, at)
            value, at = message[at : at + size], at + size
        fields[key >> 3] = value
    return fields


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at
