"""Decoding speed: contenders in processes of their own, rounds in turns, and the report."""
