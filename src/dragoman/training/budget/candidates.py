"""What a race with a budget tries besides ``auto``. The list is data: a new candidate is one more entry.

A candidate's settings are below those that the person named. A candidate that the data or these
settings do not allow is left out, and so is one that comes to the same recipe as an earlier one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

AUTO = "auto"
MADE_ROWS, MOST_MADE = 10, 4_000  # hallucinated rows: so many for each row, and at most


@dataclass(frozen=True, slots=True)
class Idea:
    """Something to try: settings, by dotted path. ``{made}`` stands for a number of rows to make."""

    name: str
    settings: Mapping[str, Any]


_RECURRENT = {"encoder.kind": "rnn", "encoder.direction": "both", "decoder.kind": "rnn"}
_LAYERS = {"kind": "transformer", "width": 128, "layers": 3, "heads": 4, "feed_forward": 512, "norm": "pre"}

# In the order in which they are tried: where the budget is short, the last ones are left out first.
IDEAS = (
    Idea(AUTO, {}),
    Idea("hallucinated", {"data.augment.hallucinate": "{made}"}),
    Idea("transformer", {
        "source.embedding": 128, "encoder": {**_LAYERS, "dropout": 0.3}, "decoder": {**_LAYERS, "dropout": 0.3},
        "training.optim.learning_rate": 1e-3, "training.optim.warmup": 400,
    }),
    Idea("dropout", {**_RECURRENT, "source.dropout": 0.5, "decoder.dropout": 0.5}),
    Idea("wide", {**_RECURRENT, "encoder.width": 512, "decoder.width": 512}),
    Idea("characters", {"source.tokenizer.kind": "characters", "target.tokenizer.kind": "characters"}),
)  # fmt: skip


def settings_of(idea: Idea, rows: int) -> dict[str, Any]:
    """Return the settings of an idea for data with so many training rows."""
    made = min(MOST_MADE, MADE_ROWS * rows)
    return {path: made if value == "{made}" else value for path, value in idea.settings.items()}
