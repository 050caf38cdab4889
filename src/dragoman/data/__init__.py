"""From files to batches: reading, auditing, splitting, tokenising, and columns of arrays or files.

``reading`` turns files into examples and their ``audit``, ``splits`` makes train, dev and test of
them, and ``corpus`` puts encoded examples into batches. Training reads files ahead of need through
``corpus.loader``. The room may import the ground and ``process``; never torch. What knows one kind
of input is a modality, which is looked up by its kind.
"""
