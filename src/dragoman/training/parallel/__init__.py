"""Several workers compute the gradient of one batch together, each on rows of its own.

``group`` is the contract. ``threads`` are the workers of one process. ``processes`` is how several
processes, on one machine or more, meet and talk; ``exchange`` is the group that they form.
``choosing`` decides which of the two a training gets.
"""
