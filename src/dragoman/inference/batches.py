"""Answer many inputs in batches of similar length, and return the answers in the order of the inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from dragoman.errors import UserError
from dragoman.inference.predictions import Prediction, empty_prediction
from dragoman.inference.requests import PreparedInput

Answer = Callable[[Mapping[int, PreparedInput]], Mapping[int, Prediction]]  # the inputs of one batch, by their index


def answer_in_batches(inputs: Sequence[PreparedInput], batch: int, answer: Answer) -> Iterator[Prediction]:
    """Yield one prediction per input, in their order, each as soon as those before it are there.

    An empty input has an empty output. An input whose file cannot be read has one too, with the reason.
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
    next_index = 0
    for begin in range(0, max(1, len(order)), batch):
        readable: dict[int, PreparedInput] = {}
        for index in order[begin : begin + batch]:
            try:
                readable[index] = inputs[index].read()
            except UserError as error:
                predictions[index] = empty_prediction(inputs[index].source, str(error))
        if readable:
            predictions.update(answer(readable))
        while next_index in predictions:
            yield predictions.pop(next_index)
            next_index += 1
