"""Hold an export against the run it was made from, on real inputs.

Greedy search and beam search must give the same tokens with the same log-probabilities. Where two
engines round differently, two outputs may be equally good. Such a tie is accepted, and counted, if
the run gives both outputs the same score within ``TIE``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from dragoman.errors import UserError
from dragoman.inference.engine.contract import Engine
from dragoman.inference.predictions import Prediction
from dragoman.inference.system import System

TIE = 1e-4  # of two scores of outputs that count as equally good
CLOSE = 2e-3  # of the log-probabilities of one token in two engines
QUANTIZED_SHARE = 0.1  # of outputs that may differ where weights are stored with 8 bits
BEAMS = (1, 5)


@dataclass(frozen=True, slots=True)
class Parity:
    """How an export compares with the run."""

    engine: str
    inputs: int
    searches: int  # of each input
    equal: int  # outputs with the same tokens
    ties: int  # other outputs that the run holds equally good
    different: int
    worst: float  # the greatest difference of a token's log-probability where the tokens are the same

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        return asdict(self)

    def to_text(self) -> str:
        """Return the figures as a sentence."""
        total = self.inputs * self.searches
        return (
            f"{self.engine}: {self.equal:,} of {total:,} outputs of {self.inputs:,} inputs are the same, {self.ties} "
            f"are equally good, {self.different} differ; log-probabilities differ by at most {self.worst:.1e}"
        )


def check_parity(
    system: System, engine: Engine, name: str, inputs: Sequence[Any], *, quantized: bool = False
) -> Parity:
    """Compare an engine with the run's own on inputs; raise an error where they do not say the same.

    ``quantized``: weights were rounded on purpose, so only the share of other outputs is limited.
    """
    if not inputs:
        raise UserError("an export is checked on inputs, and there are none; name a file with --inputs")
    other = replace(system, combined=engine)
    options: dict[str, Any] = {"attention": False, "trace": False, "probabilities": False}
    equal, ties, worst = 0, 0, 0.0
    unlike: list[tuple[int, Prediction, Prediction]] = []
    for beam in BEAMS:
        settings = {"beam": beam, "n_best": 1}
        expected = system.session(**settings).predict(list(inputs), **options)
        found = other.session(**settings).predict(list(inputs), **options)
        for row, (wanted, got) in enumerate(zip(expected, found, strict=True)):
            if wanted.error is not None or got.error is not None:
                if wanted.error is None or got.error is None:
                    unlike.append((row, wanted, got))
                else:
                    equal += 1
                continue
            first, second = wanted.outputs[0], got.outputs[0]
            if first.tokens == second.tokens:
                difference = max(
                    (abs(a - b) for a, b in zip(first.log_probs, second.log_probs, strict=True)), default=0
                )
                worst = max(worst, difference)
                if difference <= CLOSE or quantized:
                    equal += 1
                    continue
            elif abs(first.score - second.score) <= TIE:
                ties += 1
                continue
            unlike.append((row, wanted, got))
    parity = Parity(name, len(inputs), len(BEAMS), equal, ties, len(unlike), worst)
    allowed = QUANTIZED_SHARE * len(inputs) * len(BEAMS) if quantized else 0
    if len(unlike) > allowed:
        row, wanted, got = unlike[0]
        raise UserError(
            f"the export does not say what the run says. {parity.to_text()}. The first is input {row + 1}, "
            f"{wanted.source!r}: the run answers {wanted.text!r}, the export {got.text!r}"
        )
    return parity
