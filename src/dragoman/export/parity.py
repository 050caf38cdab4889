"""Hold an export against the run it was made from, on real inputs.

Greedy search and beam search must give the same tokens with the same log-probabilities. Where two
engines round differently, two outputs may be equally good. Such a tie is accepted, and counted, if
the run itself gives both outputs the same score within ``TIE``.

An engine that searches by itself may prune and stop its beam by rules of its own. Greedy search, which
leaves no choice, must still give the same outputs. Of a beam, three things are required: the
log-probability of every token is the one that the run gives to it, so the model is the same; the outputs
are on average not worse by the run's own score than the run's by more than ``LOSS``, so the search is as good;
and the figures say how many outputs differ and by how much.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias

from dragoman.config import TooLong
from dragoman.data.examples import SOURCE
from dragoman.errors import UserError
from dragoman.inference.engine.contract import Engine
from dragoman.inference.requests import PreparedInput
from dragoman.inference.session import Session
from dragoman.inference.system import System
from dragoman.types import Hypothesis

TIE = 1e-4  # of two scores of outputs that count as equally good
CLOSE = 2e-3  # of the log-probabilities of one token in two engines
LOSS = 0.01  # of the score (after length normalisation) that a search of an engine's own may cost on average
QUANTIZED_SHARE = 0.1  # of outputs that may differ where weights are stored with 8 bits
QUANTIZED_LOSS = 0.02  # or, where more differ, what they may cost on average by the run's own score
BEAMS = (1, 5)
BATCH = 64

Answer: TypeAlias = "Hypothesis | str"  # the best output for an input, or why there is none
AnswerAll: TypeAlias = Callable[[int, Sequence[PreparedInput]], Sequence[Answer]]  # with a beam of this width


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
    loss: float = 0.0  # by how much the outputs are worse on average by the run's own score, of the search that
    # differs most; less than 0: better
    own_search: bool = False  # the engine searches by itself
    note: str = ""  # what the export does otherwise for files that it reads itself, in sentences

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        return asdict(self)

    def to_text(self) -> str:
        """Return the figures as a sentence."""
        total = self.inputs * self.searches
        cost = ""
        if self.different:
            which = "worse" if self.loss > 0 else "better"
            cost = f"; by the run's own score the outputs are {which} by {abs(self.loss):.1e} on average"
        return (
            f"{self.engine}: {self.equal:,} of {total:,} outputs of {self.inputs:,} inputs are the same, {self.ties} "
            f"are equally good, {self.different} differ; log-probabilities differ by at most {self.worst:.1e}{cost}"
            + (f". {self.note}" if self.note else "")
        )


@dataclass(frozen=True, slots=True)
class Unlike:
    """An input for which run and export do not say the same."""

    row: int
    wanted: str  # what the run says
    got: str  # what the export says


@dataclass(slots=True)
class _Count:
    """What has been compared so far."""

    equal: int = 0
    ties: int = 0
    searched: int = 0  # outputs that differ only because the engine searches by itself
    worst: float = 0.0
    loss: float = 0.0  # summed over the outputs of one search
    unlike: list[Unlike] = field(default_factory=list)

    @property
    def different(self) -> int:
        return self.searched + len(self.unlike)


def check_parity(
    system: System,
    engine: Engine,
    name: str,
    inputs: Sequence[Any],
    *,
    quantized: bool = False,
    own_search: bool = False,
) -> Parity:
    """Compare an engine with the run's own on inputs; raise an error where they do not say the same.

    ``quantized``: weights were rounded on purpose, so only the share of other outputs is limited, or
    what they cost. ``own_search``: the engine searches by itself, so beams may differ as said above.
    """
    compared = measure_parity(system, engine, name, inputs, quantized=quantized, own_search=own_search)
    return _accept(*compared, inputs, quantized)


def check_answers(
    system: System, answer: AnswerAll, name: str, inputs: Sequence[Any], *, quantized: bool = False
) -> Parity:
    """Compare the answers of an export that no engine runs; otherwise as ``check_parity``."""
    return _accept(*measure_answers(system, answer, name, inputs, quantized=quantized), inputs, quantized)


def _accept(parity: Parity, unlike: Sequence[Unlike], inputs: Sequence[Any], quantized: bool) -> Parity:
    """Return the figures, or raise an error if an export with these figures must not be written."""
    refused = bool(unlike)
    if quantized:
        most = QUANTIZED_SHARE * parity.inputs * parity.searches
        refused = len(unlike) > most and parity.loss > QUANTIZED_LOSS
    if refused:
        first = unlike[0]
        raise UserError(
            f"the export does not say what the run says. {parity.to_text()}. The first is input {first.row + 1}, "
            f"{inputs[first.row]!r}: the run answers {first.wanted!r}, the export {first.got!r}"
        )
    if not quantized and parity.loss > LOSS:
        raise UserError(
            f"the export's own search finds worse outputs than the run does. {parity.to_text()}; at most {LOSS} is "
            "accepted"
        )
    return parity


def measure_parity(
    system: System,
    engine: Engine,
    name: str,
    inputs: Sequence[Any],
    *,
    quantized: bool = False,
    own_search: bool = False,
    **settings: Any,
) -> tuple[Parity, list[Unlike]]:
    """Compare an engine with the run's own and return the figures and the outputs that are not the same.

    ``settings`` are search settings beside the beam.
    """
    other = replace(system, combined=engine)

    def answer(beam: int, prepared: Sequence[PreparedInput]) -> list[Answer]:
        return answers(other.session(beam=beam, n_best=1, **settings), prepared)

    return measure_answers(system, answer, name, inputs, quantized=quantized, own_search=own_search, **settings)


def measure_answers(
    system: System,
    answer: AnswerAll,
    name: str,
    inputs: Sequence[Any],
    *,
    quantized: bool = False,
    own_search: bool = False,
    **settings: Any,
) -> tuple[Parity, list[Unlike]]:
    """Compare the answers of an export that no engine runs; otherwise as ``measure_parity``."""
    if not inputs:
        raise UserError("an export is checked on inputs, and there are none; name a file with --inputs")
    count = _Count()
    losses = []
    for beam in BEAMS:
        session = system.session(beam=beam, n_best=1, **settings)
        prepared = session.prepare_all(list(inputs))
        expected = answers(session, prepared)
        found = answer(beam, prepared)
        for row, (wanted, got) in enumerate(zip(expected, found, strict=True)):
            _compare(count, session, prepared[row], row, wanted, got, quantized, own_search and beam > 1)
        losses.append(count.loss / len(inputs))
        count.loss = 0.0
    parity = Parity(
        name,
        len(inputs),
        len(BEAMS),
        count.equal,
        count.ties,
        count.different,
        count.worst,
        max(losses, key=abs),
        own_search,
    )
    return parity, count.unlike


def answers(session: Session, prepared: Sequence[PreparedInput]) -> list[Answer]:
    """Return the best output for each input, or why there is none."""
    found: dict[int, Answer] = {}
    readable: dict[int, PreparedInput] = {}
    for row, each in enumerate(prepared):
        try:
            if each.is_empty:
                found[row] = "the input is empty"
            else:
                readable[row] = each.read()
        except UserError as error:
            found[row] = str(error)
    order = sorted(readable, key=lambda row: readable[row].length)
    for begin in range(0, len(order), BATCH):
        rows = order[begin : begin + BATCH]
        prompts = None
        if session.system.is_language_model:
            prompts = [session.system.target.encode(readable[row].texts.get(SOURCE, "")) for row in rows]
        results = session.search_each([readable[row] for row in rows], prompts, keys=rows)
        for row, result in zip(rows, results, strict=True):
            found[row] = str(result) if isinstance(result, TooLong) else result.best
    return [found[row] for row in range(len(prepared))]


def _compare(
    count: _Count,
    session: Session,
    prepared: PreparedInput,
    row: int,
    wanted: Answer,
    got: Answer,
    quantized: bool,
    own_search: bool,
) -> None:
    """Count one output. ``session`` is the run's own."""
    if isinstance(wanted, str) or isinstance(got, str):
        if isinstance(wanted, str) and isinstance(got, str):
            count.equal += 1
        else:
            count.unlike.append(Unlike(row, _shown(session, wanted), _shown(session, got)))
        return
    if wanted.tokens == got.tokens:
        difference = _greatest_difference(wanted.log_probs, got.log_probs)
        count.worst = max(count.worst, difference)
        if difference <= CLOSE or quantized:
            count.equal += 1
            return
    else:
        score, log_probs = forced_score(session, prepared.read(), got)
        count.loss += wanted.score - score
        if abs(wanted.score - score) <= TIE and wanted.finished == got.finished:
            count.ties += 1
            return
        if own_search and not quantized:
            difference = _greatest_difference(log_probs, got.log_probs)
            count.worst = max(count.worst, difference)
            if difference <= CLOSE:
                count.searched += 1
                return
    count.unlike.append(Unlike(row, _shown(session, wanted), _shown(session, got)))


def forced_score(session: Session, prepared: PreparedInput, output: Hypothesis) -> tuple[float, Sequence[float]]:
    """Return the score of the session's search for a given output, and the log-probability of each token."""
    (path,) = session.force(prepared, [output.tokens])
    ranked = session.rank_scores(prepared, path)
    return float(ranked.sum(dtype=float)) / session.config.penalty(len(output.tokens)), path.log_probs.tolist()


def _greatest_difference(first: Sequence[float], second: Sequence[float]) -> float:
    return max((abs(a - b) for a, b in zip(first, second, strict=True)), default=0.0)


def _shown(session: Session, answer: Answer) -> str:
    return answer if isinstance(answer, str) else session.system.target.decode(answer.tokens)
