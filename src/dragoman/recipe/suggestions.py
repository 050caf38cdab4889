"""What a person may have meant by a setting that does not exist.

Other toolkits have other names for the same thing, and a name that is right may be in another
table. So a suggestion looks for the meaning before it looks for a slip of the pen.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

MOST = 3  # settings that are suggested at once

# Names that people use elsewhere, by the last component of a key, and what is meant here.
WIDTH = ("encoder.width", "decoder.width")
EMBEDDING = ("source.embedding", "decoder.embedding")
LAYERS = ("encoder.layers", "decoder.layers")
HEADS = ("encoder.heads", "decoder.heads")
FEED_FORWARD = ("encoder.feed_forward", "decoder.feed_forward")
TOKENIZER = ("source.tokenizer.kind", "target.tokenizer.kind")
VOCABULARY = ("source.tokenizer.size", "target.tokenizer.size")
_MEANINGS: dict[str | tuple[str, ...], str] = {
    "training.max_epochs": "epochs epoch num_epochs n_epochs num_train_epochs train_epochs",
    "training.max_updates": "updates steps max_steps num_steps train_steps iterations max_iterations num_updates",
    "training.max_time": "time time_limit timeout seconds max_seconds max_minutes",
    "training.batch_tokens": "batch batch_size batchsize bs max_batch tokens_per_batch train_batch_size",
    "training.accumulate": "accumulation accumulation_steps gradient_accumulation gradient_accumulation_steps "
    "accumulate_grad_batches accum_count update_freq",
    "training.validate_every": "eval_every eval_steps validation_interval val_every valid_steps validation_freq",
    "training.save_every": "save_steps save_interval checkpoint_every",
    "training.log_every": "log_steps logging_steps log_interval report_every",
    "training.patience": "early_stopping early_stop early_stopping_patience",
    "training.device": "gpu cuda gpus accelerator",
    "training.threads": "cores num_threads cpu_threads cpus",
    "training.loaders": "workers num_workers dataloader_workers",
    "training.seed": "random_seed rng",
    "training.autocast": "fp16 bf16 amp mixed_precision precision half",
    "training.label_smoothing": "smoothing label_smooth ls",
    "training.average": "averaging average_checkpoints ema checkpoint_averaging",
    "training.freeze": "frozen freeze_layers",
    "training.optim.learning_rate": "lr learningrate learn_rate",
    "training.optim.warmup": "warmup_steps warmup_updates num_warmup_steps warm_up",
    "training.optim.weight_decay": "wd l2 regularization",
    "training.optim.clip": "grad_clip clip_norm gradient_clip gradient_clipping max_grad_norm clip_grad clipping",
    "training.optim.schedule": "scheduler lr_scheduler lr_schedule",
    "training.optim.kind": "optimizer optimiser",
    "training.optim.betas": "beta beta1 beta2 adam_betas",
    "training.optim.epsilon": "eps adam_eps adam_epsilon",
    "training.sampling.schedule": "scheduled_sampling teacher_forcing teacher_forcing_ratio",
    "max_tokens": "max_source_length max_target_length max_seq_len max_seq_length max_len seq_len",
    "search.beam": "beam_size beam_width beams num_beams",
    "search.n_best": "nbest num_return_sequences",
    "search.normalize": "length_penalty lenpen normalization normalisation",
    "data.dev_share": "dev_size val_size valid_size validation_split val_split dev_split",
    "data.test_share": "test_size test_split",
    WIDTH: "hidden hidden_size hidden_dim hidden_units d_model model_dim dim units rnn_size",
    EMBEDDING: "emb embedding_size embedding_dim embed_dim embeddings word_vec_size",
    LAYERS: "num_layers n_layers depth",
    HEADS: "num_heads n_heads nhead attention_heads",
    FEED_FORWARD: "ffn ff ff_dim ffn_dim dim_feedforward feedforward",
    TOKENIZER: "tokeniser tokenization tokenisation bpe sentencepiece",
    VOCABULARY: "vocab vocab_size vocabulary vocabulary_size",
}
SYNONYMS: dict[str, tuple[str, ...]] = {
    name: (meant,) if isinstance(meant, str) else meant for meant, names in _MEANINGS.items() for name in names.split()
}


def suggest(path: str, siblings: Sequence[str], known: Sequence[str]) -> str:
    """Return a hint for an unknown key: what it means, where it belongs, or what it resembles.

    ``siblings`` are the keys of the table that it is in; ``known`` are all keys there are, as paths.
    """
    above, _, key = path.rpartition(".")
    key = key.lower().replace("-", "_")
    meant = SYNONYMS.get(key, ())
    in_table = [name for name in siblings if name in {each.rpartition(".")[2] for each in meant}]
    if in_table:
        return _ask([each for each in meant if each.rpartition(".")[0] == above] or in_table)
    if meant:
        return _ask(meant)
    if key in siblings:
        return _ask([key])
    if elsewhere := [each for each in known if each.rpartition(".")[2] == key]:
        inside = [each for each in elsewhere if above and each.startswith(f"{above}.")]
        return _ask((inside or elsewhere)[:MOST])
    if close := difflib.get_close_matches(key, siblings, n=1, cutoff=0.5):
        return _ask(close)
    by_name = {each.rpartition(".")[2]: each for each in reversed(known)}
    if close := difflib.get_close_matches(key, list(by_name), n=1, cutoff=0.75):
        return _ask([by_name[close[0]]])
    return "choose from: " + ", ".join(sorted(siblings))


def _ask(settings: Sequence[str]) -> str:
    return f"did you mean {' or '.join(map(repr, settings))}?"
