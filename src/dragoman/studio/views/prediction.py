"""A prediction: its outputs token by token, the axis of attention, and the reference."""

from __future__ import annotations

from functools import partial

from dragoman.serving.queue import UNLIMITED, Job
from dragoman.studio import records
from dragoman.studio.inspection import Inspection
from dragoman.studio.records import PredictRequest
from dragoman.studio.views.attention import count_maps
from dragoman.studio.views.matrices import pack_weights
from dragoman.studio.views.media import Locate, describe_axes
from dragoman.studio.views.reference import describe_reference, encode_reference
from dragoman.studio.views.runs import describe_search
from dragoman.studio.views.tokens import describe_tokens, permitted_mask, source_tokenizers, unknown_words


def describe_prediction(
    inspection: Inspection,
    request: PredictRequest,
    run: str = "",
    locate: Locate = lambda _: "",
    job: Job = UNLIMITED,
) -> records.Prediction:
    """Describe what the search found. ``locate`` gives the URL of a source that is a file."""
    session, prepared, system = inspection.session, inspection.prepared, inspection.system
    reference = encode_reference(system, request.reference)
    sequences = [hypothesis.tokens for hypothesis in inspection.result.hypotheses]
    if reference:
        sequences.append(reference)  # scored in the same call as the outputs
    paths = session.force(
        prepared,
        sequences,
        alternatives=request.alternatives,
        attention=True,
        permitted=partial(permitted_mask, session),
        on_batch=job.checkpoint,
    )
    positions = len(inspection.prediction.labels)
    outputs = [
        records.Output(
            text=output.text,
            score=output.score,
            log_prob=output.log_prob,
            confidence=output.confidence,
            finished=output.finished,
            tokens=describe_tokens(system, path, len(inspection.prefix)),
            attention=None if path.attention is None else pack_weights(path.attention[..., :positions].mean(1)),
        )
        for output, path in zip(inspection.prediction.outputs, paths, strict=False)
    ]
    return records.Prediction(
        run=run,
        input=dict(prepared.texts),
        outputs=outputs,
        classes=[
            records.ClassProbability(label=label, probability=share)
            for label, share in session.class_probabilities([prepared])[0].shown.items()
        ],
        axes=describe_axes(inspection, locate),
        cross=count_maps(system, "cross"),
        encoder=count_maps(system, "encoder"),
        decoder=count_maps(system, "decoder"),
        search=describe_search(session.config),
        reference=describe_reference(inspection, request.reference, paths[-1])
        if reference and request.reference
        else None,
        right="" if system.confidence is None else system.confidence.describe(),
        confidence_note=inspection.prediction.confidence_note or "",
        unknown=_find_unknown(inspection),
        seconds=inspection.seconds,
    )


def _find_unknown(inspection: Inspection) -> dict[str, list[str]]:
    """Return the unknown words of each text source that has some."""
    words = {
        name: unknown_words(tokenizer, inspection.prepared.texts[name])
        for name, tokenizer in source_tokenizers(inspection.system).items()
    }
    return {name: unknown for name, unknown in words.items() if unknown}
