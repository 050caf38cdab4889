"""Encoded examples: columns of arrays or files, batches within a token budget, running text.

Nothing here imports torch; a batch becomes tensors when it is made.
"""
