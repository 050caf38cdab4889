"""Fifth stage: the model, with the weights that it starts from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dragoman.inference.build import build_model
from dragoman.inference.system import System
from dragoman.process.cpu import prepare_bfloat16
from dragoman.process.devices import pick_device
from dragoman.runs.lengths import LengthLimits
from dragoman.training.corpus import EncodedExamples
from dragoman.training.freezing import find_frozen
from dragoman.training.objective.ctc import describe_ctc
from dragoman.training.objective.distill import Teacher, make_teacher
from dragoman.training.objective.loss import check_attention
from dragoman.training.objective.r_drop import check_r_drop
from dragoman.training.plan.choosing import Choice
from dragoman.training.transfer.pretrained import load_pretrained
from dragoman.training.transfer.weights import Transfer, transfer_weights


@dataclass(frozen=True, slots=True)
class BuiltSystem:
    """The system before its first update."""

    system: System
    transfers: tuple[Transfer, ...]
    reasons: tuple[str, ...]
    teacher: Teacher | None


def build(choice: Choice) -> BuiltSystem:
    """Build the model, and fill it with pretrained weights and with those of other runs."""
    recipe = choice.recipe
    reasons: list[str] = []
    if recipe.training.autocast and pick_device(recipe.training.device).type == "cpu":
        reasons += filter(None, [prepare_bfloat16()])  # before the first product
    model = build_model(recipe, choice.modalities, choice.target)
    check_attention(model.decoder, recipe.training)
    check_r_drop(model.decoder, recipe.training)
    lengths = output_lengths(choice.rows, recipe.token_limit)
    system = System(
        recipe,
        choice.modalities,
        choice.target,
        model,
        lengths,
        classes=choice.classes,
        columns=choice.data.columns,
    )
    if recipe.training.ctc:
        tokens = (target[:-1].tolist() for target in choice.rows.targets)  # without the end symbol
        reasons += describe_ctc(recipe.training.ctc, state_counts(system, choice.rows), tokens)
    teacher = make_teacher(system, choice.origins.teachers)
    if teacher is not None:
        distill = recipe.training.distill
        reasons.append(
            f"objective: {1 - distill.weight:g} of the usual loss, {distill.weight:g} of the mean probabilities of "
            f"{len(distill.teachers)} runs ({', '.join(distill.teachers)})"
        )
    reasons += load_pretrained(model)
    transfers = transfer_weights(system, choice.origins)
    reasons += [line for transfer in transfers for line in transfer.describe()]
    reasons += find_frozen(model, recipe.training.freeze).describe(recipe.training.freeze)
    return BuiltSystem(system, tuple(transfers), tuple(reasons), teacher)


def output_lengths(rows: EncodedExamples, max_tokens: int) -> LengthLimits:
    """Learn from the training rows how long an output may get.

    A line of running text may exceed ``max_tokens``.
    """
    return LengthLimits.of(rows.longest_sources, np.minimum(rows.target_lengths, max_tokens) + 1)


def state_counts(system: System, rows: EncodedExamples) -> list[int]:
    """Return how many states the one encoder has for each row."""
    ((name, lengths),) = rows.lengths.items()
    stride = system.strides[name]
    return [-(-length // stride) for length in lengths.tolist()]
