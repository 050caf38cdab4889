"""Several workers compute the gradient of one batch together, each on rows of its own.

``group`` is the contract; ``threads`` is the one implementation so far.
"""
