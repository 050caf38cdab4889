"""More training rows from the same ones: made-up words, copies, both directions, and rows that a model made.

May import the ground and ``data``. Rows are made after the data was split, from training rows alone.
"""
