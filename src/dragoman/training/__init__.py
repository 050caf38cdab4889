"""Objective, optimiser, checkpoints and the loop that joins them."""
