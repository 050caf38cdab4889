"""The state of training on disk: the checkpoint to resume from, and snapshots of weights."""
