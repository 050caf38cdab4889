"""Small random modules of every kind, found by listing the plug-in folders: a new file is tested unasked."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch

from dragoman.nn.contracts import Decoder
from dragoman.parts import kinds, part
from dragoman.types import Memory, Padded

WIDTH, VOCABULARY, POSITIONS = 12, 11, 7

# More than the defaults of a kind: settings that lead to other code. A kind that is not named here is tested with its
# defaults, so that nothing goes untested.
CELLS = ("tanh", "relu", "gru", "lstm")
ENCODER_SETTINGS: dict[str, list[dict[str, Any]]] = {
    "conv": [
        {"norm": norm, "positions": positions, "width": 10, "layers": 2}
        for norm, positions in (("none", "learned"), ("layer", "sinusoidal"), ("batch", "learned"))
    ],
    "grid": [
        {"width": 12, "channels": (4, 6), "stride": 4},
        {"width": 12, "channels": (4, 6), "stride": 4, "norm": "group"},
        {"width": 12, "channels": (4, 6, 5), "stride": 2, "positions": "learned", "max_positions": 12},
        {"width": 12, "network": "resnet18", "stride": 8, "positions": "none"},
        {"width": 12, "network": "resnet50", "stride": 4},
    ],
    "pyramid": [
        *({"cell": cell, "layers": 3, "width": 6} for cell in CELLS),
        {"layers": 3, "halvings": 1, "width": 6},
        {"layers": 1, "width": 6},
    ],
    "rnn": [
        {"cell": cell, "layers": layers, "direction": direction, "width": 6}
        for cell, layers, direction in itertools.product(CELLS, (1, 2), ("forward", "backward", "both"))
    ],
    "subsampled": [
        {"width": 8, "inner": {"kind": "transformer", "width": 12, "layers": 1, "heads": 3, "feed_forward": 16}},
        {"width": 8, "layers": 1, "kernel": 5, "inner": {"kind": "rnn", "width": 6}},
        {"width": 8, "layers": 1, "inner": {"kind": "pyramid", "width": 6, "layers": 2}},
        {"width": 8, "inner": {"kind": "identity"}},
    ],
    "transformer": [
        {"norm": norm, "positions": positions, "width": width, "layers": 2, "heads": 3, "feed_forward": 16}
        for norm, positions, width in (
            ("pre", "sinusoidal", 12),
            ("post", "sinusoidal", 12),
            ("pre", "learned", 18),
            ("pre", "rotary", 12),
        )
    ],
}
SMALL_TRANSFORMER = {"kind": "transformer", "width": 12, "layers": 2, "heads": 3, "feed_forward": 16}
DECODER_SETTINGS: dict[str, list[dict[str, Any]]] = {
    "concat": [
        *({"network": {"kind": "rnn", "cell": cell, "width": 10, "layers": 2, "embedding": 12}} for cell in CELLS),
        {"network": {"kind": "rnn", "width": 12, "embedding": 12, "deep_output": True, "tie_embeddings": False}},
        *(
            {"network": {**SMALL_TRANSFORMER, "norm": norm, "positions": positions, "embedding": 12, "width": width}}
            for norm, positions, width in (("pre", "sinusoidal", 12), ("post", "learned", 18), ("pre", "rotary", 12))
        ),
    ],
    "conv": [
        {"positions": positions, "kernel": kernel, "embedding": embedding, "tie_embeddings": tie, "layers": 2}
        for positions, kernel, embedding, tie in (("learned", 3, 12, True), ("sinusoidal", 2, 8, False))
    ],
    "monotone": [
        *({"attention": {"kind": kind}} for kind in kinds("attention") if not part("attention", kind).recurrent),
        {"order": 0, "layers": 2, "cell": "gru", "tie_embeddings": False},
        {"longest_jump": 2},
    ],
    "rnn": [
        *({"cell": cell, "context": "initial", "layers": 2} for cell in CELLS),
        *({"cell": cell, "context": "every-step", "layers": 2} for cell in CELLS),
        *({"cell": cell, "timing": "before", "layers": layers} for cell in CELLS for layers in (1, 2)),
        *({"cell": cell, "timing": "after", "layers": layers} for cell in CELLS for layers in (1, 2)),
        *({"cell": cell, "input_feeding": True, "layers": layers} for cell in CELLS for layers in (1, 2)),
        *(
            {"attention": {"kind": kind}, "timing": timing}
            for kind in kinds("attention")
            for timing in ("before", "after")
        ),
        *(
            {"attention": {"kind": kind}, "selection": "hard", **timing}
            for kind in kinds("attention")
            for timing in ({"timing": "before"}, {"timing": "after"}, {"input_feeding": True})
        ),
        *({"context_gate": True, **timing} for timing in ({"timing": "before"}, {"timing": "after"})),
        {"context_gate": True, "input_feeding": True, "selection": "hard"},
        {"deep_output": True, "timing": "before", "tie_embeddings": False},
        {"deep_output": True, "context": "initial"},
        {"bridge": "dense"},
        {"bridge": "zero"},
    ],
    "transformer": [
        {"norm": norm, "positions": positions, "tie_embeddings": tie, "layers": 2, "heads": 3, "feed_forward": 16}
        for norm, positions, tie in (
            ("pre", "sinusoidal", True),
            ("post", "sinusoidal", False),
            ("pre", "learned", True),
            ("pre", "rotary", True),
        )
    ],
}


def seeded(seed: int = 0) -> None:
    torch.manual_seed(seed)


def encoders() -> Iterator[tuple[str, dict[str, Any]]]:
    for kind in kinds("encoder"):
        for settings in ENCODER_SETTINGS.get(kind, [{}]):
            yield kind, settings


def decoders() -> Iterator[tuple[str, dict[str, Any]]]:
    for kind in kinds("decoder"):
        for settings in DECODER_SETTINGS.get(kind, [{}]):
            yield kind, settings


def lowered_decoders() -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the decoders that say how they compute in use; the others are refused by name."""
    for case in decoders():
        if part("decoder", case[0]).lower is not Decoder.lower:
            yield case


def name(case: tuple[str, dict[str, Any]]) -> str:
    kind, settings = case
    return "-".join([kind, *(f"{key}={value}" for key, value in settings.items())])


def make_encoder(case: tuple[str, dict[str, Any]]) -> Any:
    seeded(1)
    kind, settings = case
    found = part("encoder", kind)
    return found(found.Config(**settings), input_width=WIDTH).eval()


def make_attention(kind: str, query_width: int = WIDTH, memory_width: int = WIDTH) -> Any:
    seeded(2)
    found = part("attention", kind)
    return found(found.Config(), query_width=query_width, memory_width=memory_width).eval()


def make_decoder(case: tuple[str, dict[str, Any]], memory: Memory | None) -> Any:
    seeded(3)
    kind, settings = case
    found = part("decoder", kind)
    fields = found.Config.model_fields
    sizes = {key: WIDTH for key in ("width", "embedding") if key in fields and key not in settings}
    shape = None if memory is None or memory.summary is None else tuple(memory.summary.shape[1:])
    return found(
        found.Config(**sizes, **settings),
        vocabulary=VOCABULARY,
        memory_width=None if memory is None else memory.states.shape[-1],
        summary_shape=shape,
    ).eval()


def make_padded(batch: int = 4, seed: int = 5) -> Padded:
    seeded(seed)
    lengths = torch.tensor([POSITIONS, 3, 1, 5, 2, 6, 4, 7][:batch])
    mask = torch.arange(POSITIONS) < lengths[:, None]
    return Padded(torch.randn(batch, POSITIONS, WIDTH), mask)


def make_pictures(batch: int = 4, seed: int = 5) -> Padded:
    """Pictures of different height and width in one batch, real on the left above."""
    seeded(seed)
    heights = torch.tensor([13, 4, 1, 9, 2, 12, 13, 5][:batch])
    widths = torch.tensor([6, 17, 1, 17, 8, 9, 1, 16][:batch])
    mask = (torch.arange(13) < heights[:, None])[:, :, None] & (torch.arange(17) < widths[:, None])[:, None]
    return Padded(torch.randn(batch, 13, 17, WIDTH), mask)


def make_source(encoder: Any, batch: int = 4, seed: int = 5) -> Padded:
    """What this encoder reads."""
    return make_pictures(batch, seed) if encoder.reads == "picture" else make_padded(batch, seed)


def cut(source: Padded, row: int) -> Padded:
    """One row alone, without its padding."""
    sides = source.mask[row].nonzero().amax(0) + 1  # real positions come first
    part = (slice(row, row + 1), *(slice(int(side)) for side in sides))
    return Padded(source.data[part], source.mask[part])


def make_memory(batch: int = 4, seed: int = 6, layers: int = 2, parts: int = 2) -> Memory:
    source = make_padded(batch, seed)
    return Memory(source.data, source.mask, summary=torch.randn(batch, layers, parts, WIDTH))


def rows_of(memory: Memory, rows: list[int]) -> Memory:
    return Memory(
        memory.states[rows],
        memory.mask[rows],
        None if memory.values is None else memory.values[rows],
        None if memory.summary is None else memory.summary[rows],
    )


def close(first: torch.Tensor, second: torch.Tensor, tolerance: float = 2e-5) -> bool:
    return torch.allclose(first, second, atol=tolerance, rtol=1e-4)
