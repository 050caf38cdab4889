"""Choose how a run's alignments are read from its attention, by word pairs that occur together in its own data."""
