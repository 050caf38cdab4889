"""Answer many inputs in batches of similar length, and return the answers in the order of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from dragoman.errors import UserError
from dragoman.inference.predictions import Prediction, empty_prediction
from dragoman.inference.requests import PreparedInput

Answer = Callable[[Mapping[int, PreparedInput]], Mapping[int, Prediction]]  # the inputs of one batch, by their index
AnswerBatch = Callable[[Sequence[int]], Mapping[int, Prediction]]  # the same, given the indices alone
Run = Callable[[Sequence[Sequence[int]], AnswerBatch], Iterator[Mapping[int, Prediction]]]


def answer_in_batches(
    inputs: Sequence[PreparedInput], batch: int, answer: Answer, run: Run | None = None
) -> Iterator[Prediction]:
    """Yield one prediction per input, in their order, each as soon as those before it are there.

    An empty input has an empty output. An input whose file cannot be read has one too, with the reason. ``run`` answers
    the batches, given by the indices of their inputs; by default one after the other.
    """
    predictions: dict[int, Prediction] = {}
    lengths: dict[int, int] = {}
    for index, prepared in enumerate(inputs):
        if prepared.is_empty:
            predictions[index] = empty_prediction(prepared.source)
            continue
        try:
            lengths[index] = prepared.length
        except UserError as error:
            predictions[index] = empty_prediction(prepared.source, str(error))
    order = sorted(lengths, key=lambda index: lengths[index])
    batches = [order[begin : begin + batch] for begin in range(0, len(order), batch)]

    def answer_batch(indices: Sequence[int]) -> dict[int, Prediction]:
        """Read the files of a batch and answer it."""
        readable: dict[int, PreparedInput] = {}
        answers: dict[int, Prediction] = {}
        for index in indices:
            try:
                readable[index] = inputs[index].read()
            except UserError as error:
                answers[index] = empty_prediction(inputs[index].source, str(error))
        return answers | (dict(answer(readable)) if readable else {})

    next_index = 0
    for answered in (run or answer_in_turn)(batches, answer_batch):
        predictions.update(answered)
        while next_index in predictions:
            yield predictions.pop(next_index)
            next_index += 1
    while next_index in predictions:
        yield predictions.pop(next_index)
        next_index += 1


def answer_in_turn(batches: Sequence[Sequence[int]], answer: AnswerBatch) -> Iterator[Mapping[int, Prediction]]:
    """Answer batches one after the other."""
    yield from map(answer, batches)
