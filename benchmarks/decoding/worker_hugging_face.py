"""A worker that decodes with Hugging Face's ``generate``: worker_hugging_face.py RUN INPUTS.json.

The weights of a run of the preset transformer-tiny (pre-norm, one table of vectors) fit Pegasus, whose position
vectors are replaced by the run's. Runs with the Python of an environment that has torch and transformers.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from decoding.serve import serve

PARTS = {"query": "q_proj", "keys": "k_proj", "values": "v_proj", "join_memory": "out_proj"}


def main() -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch

    torch.set_num_threads(1)
    given: dict[str, Any] = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8"))
    model = build(Path(sys.argv[1]), given["limit"])

    def decode(rows: Sequence[Sequence[int]], beam: int, batch: int) -> list[list[int]]:
        order = sorted(range(len(rows)), key=lambda row: len(rows[row]))
        outputs: list[list[int]] = [[] for _ in rows]
        for begin in range(0, len(order), batch):
            members = order[begin : begin + batch]
            longest = max(len(rows[row]) for row in members)
            ids = torch.zeros(len(members), longest, dtype=torch.long)
            for index, row in enumerate(members):
                ids[index, : len(rows[row])] = torch.tensor(rows[row])
            with torch.inference_mode():
                found = model.generate(
                    input_ids=ids, attention_mask=(ids != 0).long(), num_beams=beam, do_sample=False,
                    suppress_tokens=[0, 1, 2], length_penalty=1.0, early_stopping=True, max_new_tokens=given["limit"],
                )  # fmt: skip
            for row, tokens in zip(members, found.tolist(), strict=True):
                outputs[row] = tokens
        return outputs

    serve(given["ids"], decode)


def build(run: Path, longest: int) -> Any:
    """Return the run's weights as a Pegasus model."""
    import torch
    from safetensors.torch import load_file
    from transformers import PegasusConfig, PegasusForConditionalGeneration  # type: ignore[import-not-found]

    own = load_file(run / "model.safetensors")
    config = json.loads((run / "config.json").read_text(encoding="utf-8"))["recipe"]
    encoder, decoder = next(iter(config["sources"].values()))["encoder"], config["decoder"]
    if not encoder["kind"] == decoder["kind"] == "transformer" or encoder["norm"] != "pre":
        sys.exit("Hugging Face: the run is no pre-norm Transformer")
    table = own.get("decoder.embedding.weight", own.get("frontends.source.embedding.weight"))
    assert table is not None
    model = PegasusForConditionalGeneration(
        PegasusConfig(
            vocab_size=len(table), d_model=encoder["width"], encoder_layers=encoder["layers"],
            decoder_layers=decoder["layers"], encoder_ffn_dim=encoder["feed_forward"],
            decoder_ffn_dim=decoder["feed_forward"], encoder_attention_heads=encoder["heads"],
            decoder_attention_heads=decoder["heads"], activation_function="relu", scale_embedding=True,
            max_position_embeddings=512, pad_token_id=0, eos_token_id=3, bos_token_id=2, decoder_start_token_id=2,
            forced_eos_token_id=None, tie_word_embeddings=True, dropout=0.0,
        )
    )  # fmt: skip
    mapped: dict[str, Any] = {}

    def put(name: str, source: str) -> None:
        mapped[f"{name}.weight"], mapped[f"{name}.bias"] = own[f"{source}.weight"], own[f"{source}.bias"]

    for side, name, layers in (("encoder", "encoders.source", encoder), ("decoder", "decoder", decoder)):
        put(f"model.{side}.layer_norm", f"{name}.last_norm")
        for index in range(layers["layers"]):
            theirs, ours = f"model.{side}.layers.{index}", f"{name}.blocks.{index}"
            for kind in ("weight", "bias"):
                for part, tensor in zip("qkv", own[f"{ours}.project.{kind}"].chunk(3), strict=True):
                    mapped[f"{theirs}.self_attn.{part}_proj.{kind}"] = tensor.clone()
            put(f"{theirs}.self_attn.out_proj", f"{ours}.join")
            around = "around_self" if side == "decoder" else "around_attention"
            put(f"{theirs}.self_attn_layer_norm", f"{ours}.{around}.norm")
            if side == "decoder":
                for source, target in PARTS.items():
                    put(f"{theirs}.encoder_attn.{target}", f"{ours}.{source}")
                put(f"{theirs}.encoder_attn_layer_norm", f"{ours}.around_memory.norm")
            put(f"{theirs}.fc1", f"{ours}.feed_forward.inner")
            put(f"{theirs}.fc2", f"{ours}.feed_forward.outer")
            put(f"{theirs}.final_layer_norm", f"{ours}.around_feed_forward.norm")
    for name in ("model.shared", "model.encoder.embed_tokens", "model.decoder.embed_tokens", "lm_head"):
        mapped[f"{name}.weight"] = table
    missing, unexpected = model.load_state_dict(mapped, strict=False)
    if unexpected or any("embed_positions" not in name and "final_logits_bias" not in name for name in missing):
        sys.exit(f"Hugging Face: the weights of this run do not fit Pegasus: {unexpected or missing}")
    rates = torch.exp(torch.arange(0, encoder["width"], 2) * (-math.log(10000.0) / encoder["width"]))
    angles = torch.arange(512)[:, None] * rates
    positions = torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
    with torch.no_grad():
        model.model.encoder.embed_positions.weight.copy_(positions)
        model.model.decoder.embed_positions.weight.copy_(positions)
    model.generation_config.forced_eos_token_id = None
    return model.eval()


if __name__ == "__main__":
    main()
