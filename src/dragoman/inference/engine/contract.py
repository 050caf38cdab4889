"""The contract of engines: from the strings of an input to a memory, and a decoder over it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from dragoman.data.corpus.files import PendingFile
from dragoman.data.vocabulary import BOS, EOS
from dragoman.errors import UserError
from dragoman.search.options import SearchConfig
from dragoman.search.trace import Result

if TYPE_CHECKING:  # torch takes a second to import, and not every engine needs it
    import torch

    from dragoman.search.rows import SearchDecoder
    from dragoman.search.run import MakeRules

# Of one input, by source; files are read when they are needed.
Features: TypeAlias = Mapping[str, "np.ndarray | PendingFile"]
Arrays: TypeAlias = Mapping[str, np.ndarray]  # the same, with all files read


@dataclass(frozen=True, slots=True)
class SelfAttention:
    """Where the states of a model look within their own side. None: the side has no self-attention."""

    encoder: np.ndarray | None  # (L, H, S, S); with several sources, of the encoder that reads them together
    outputs: tuple[np.ndarray | None, ...]  # of the decoder, (L, H, T, P) for each output that was asked about;
    # ``predictions.self_attention_columns`` says what the columns are


@dataclass(frozen=True, slots=True)
class ModelOutline:
    """What is told about a model without its weights."""

    strides: Mapping[str, int]  # positions of each source that the encoder makes one state of
    reads_source: bool  # one network reads source and target
    parameters: int


class Entering(NamedTuple):
    """An input that enters a running search."""

    arrays: Arrays
    limit: int  # the most tokens of its output
    prefix: Sequence[int] = ()  # tokens that its output begins with
    key: int = 0  # seeds its samples


class RunningSearch(Protocol):
    """A search that inputs enter while it runs. A result does not depend on what else is in it."""

    def __len__(self) -> int:
        """Return how many inputs have entered and were neither taken nor dropped."""
        ...

    @property
    def room(self) -> int:
        """Return how many inputs may enter now."""
        ...

    def add(self, inputs: Sequence[Entering]) -> list[int]:
        """Let inputs enter, and return their numbers. After an error none of them has, and the others go on."""
        ...

    def advance(self) -> None:
        """Advance all inputs by one token. After an error the search cannot go on."""
        ...

    def take(self) -> list[tuple[int, Result]]:
        """Return the numbers and results of the inputs that are done."""
        ...

    def drop(self, number: int) -> None:
        """Give up an input."""
        ...


class Engine(ABC):
    """What computes for one system.

    Laws: an engine never changes, and many threads may ask it at once; a row is encoded and decoded the same whatever
    else is in its batch; ``search`` and ``force`` give what the loops of ``dragoman.search`` give.
    """

    name: str  # as it is chosen: "torch", "native", …
    has_attention: bool  # does the decoder tell where it looks in the source?
    chunk: int | None  # running text: tokens that are read together; None: the decoder's state is carried on for ever

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """The device that tokens have to be on."""

    @property
    def place(self) -> str:
        """Where it computes, in words."""
        return str(self.device)

    @property
    def of_sequences(self) -> Engine:
        """The engine that reads many given tokens in one call: this one, or one that is faster at that."""
        return self

    @property
    @abstractmethod
    def decoder(self) -> SearchDecoder:
        """The decoder whose log-probabilities are the system's own."""

    @abstractmethod
    def ctc_decoder(self) -> SearchDecoder:
        """Return the CTC head of the encoder as a decoder. Raise a ``UserError`` if the system has none."""

    @property
    def has_ctc(self) -> bool:
        """Whether the encoder has a CTC head, so that ``ctc_log_probs`` answers."""
        return False

    def ctc_log_probs(self, rows: Sequence[Arrays]) -> list[np.ndarray]:
        """Return the log-probabilities of CTC's labels, the blank included, at each state of each input, (S, V)."""
        raise missing_ctc(f"the engine {self.name!r}")

    def search_decoder(self, config: SearchConfig) -> SearchDecoder:
        """Return the decoder to search with.

        If it is not ``decoder``, its scores are for ranking only: ``Hypothesis.score`` and the trace hold them, while
        the ``log_probs`` of an output stay the system's own.
        """
        if not config.ctc:
            return self.decoder
        from dragoman.search.ctc_prefix import WithCTC

        return WithCTC(self.decoder, self.ctc_decoder(), config.ctc)

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
        """Search for the outputs of a batch of inputs. The arguments are those of ``dragoman.search.run.search``.

        ``trace``: the results need their traces. ``further`` makes rules that the config does not name. An engine
        with a loop of its own overrides this.
        """
        import torch

        from dragoman.search.paths import rescore
        from dragoman.search.run import search

        decoder = self.search_decoder(config)
        with torch.inference_mode():
            memory = self.encode(rows)
            results = search(
                decoder,
                memory,
                len(rows),
                config,
                bos=BOS,
                eos=EOS,
                limits=limits,
                prefix=prefixes,
                keys=keys,
                need_attention=attention,
                need_trace=trace,
                on_step=on_step,
                on_token=on_token,
                further=further,
            )
            if decoder is self.decoder:
                return results
            return rescore(self.decoder, memory, results, bos=BOS, eos=EOS, config=config)

    def can_run_on(self, config: SearchConfig) -> bool:
        """Tell whether ``running_search`` can search with these settings."""
        return False

    def running_search(
        self, config: SearchConfig, *, attention: bool = False, trace: bool = True, batch: int = 64
    ) -> AbstractContextManager[RunningSearch]:
        """Return a search that inputs enter while it runs, ``batch`` of them at the same time."""
        raise UserError(f"the engine {self.name!r} searches for batches only")

    def force(self, rows: Sequence[Arrays], targets: Sequence[Sequence[int]]) -> list[tuple[float, ...]]:
        """Return the log-probabilities of the tokens of one given target per input."""
        import torch

        from dragoman.search.paths import force

        with torch.inference_mode():
            hypotheses = force(self.decoder, self.encode(rows), len(rows), targets, bos=BOS, eos=EOS)
        return [hypothesis.log_probs for hypothesis in hypotheses]

    def score_outputs(self, rows: Sequence[Arrays], outputs: Sequence[Sequence[int]], vocabulary: int) -> np.ndarray:
        """Return the log-probabilities of the tokens of some outputs given each input, (B, outputs, T).

        After the end of an output, there is 0.
        """
        from dragoman.inference.scoring import score_classes

        return score_classes(self, rows, outputs, vocabulary)

    @abstractmethod
    def prepare(self, texts: Mapping[str, str]) -> Features:
        """Turn the strings of one input, by source, into what ``encode`` reads."""

    @abstractmethod
    def length_limit(self, features: Features) -> int:
        """Return how many tokens an output of this input may have."""

    @abstractmethod
    def encode(self, rows: Sequence[Arrays]) -> Any:
        """Encode a batch of inputs and return their memory, which ``decoder.start`` takes."""

    def own_arrays(self, arrays: Arrays) -> Arrays:
        """Return the arrays by the names of the sources. Engines of several runs have some of each."""
        return arrays

    @abstractmethod
    def represent(self, rows: Sequence[Arrays]) -> tuple[np.ndarray, str]:
        """Return one vector per input, (B, D), and what the vectors are, in words."""

    @abstractmethod
    def self_attention(self, row: Arrays, outputs: Sequence[Sequence[int]]) -> SelfAttention:
        """Return the self-attention of both sides for one input and the tokens of some of its outputs."""

    @abstractmethod
    def describe_members(self) -> str | None:
        """Name the runs that this engine combines. None: it is one run, which can be saved."""


def label_log_probs(logits: np.ndarray) -> np.ndarray:
    """Return the log-probabilities of CTC's labels (S, V). The end symbol is none of them."""
    scores = logits.astype(np.float64)
    scores[:, EOS] = -np.inf
    scores -= scores.max(1, keepdims=True)
    normalised: np.ndarray = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    return normalised


def missing_ctc(name: str) -> UserError:
    """Return the error for a search that asks for CTC where there is none."""
    return UserError(f"search.ctc: {name} was trained without CTC (training.ctc) and has none to ask; set it to 0")
