"""Corpora larger than memory: rows and their tokens in files that are mapped into memory.

Reading writes the rows into shards (``rows``), while other processes (``workers``) count what the
audit reports and compute a digest of every row (``survey``). Duplicates and held-out rows are found
by these digests (``digests``). The rows are then tokenised shard by shard (``tokens``). A prepared
corpus is a folder (``folder``), from which the next start goes on. The law: training on such a
corpus has the same batches and gives the same weights as on the same rows in memory.
"""
