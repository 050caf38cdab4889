"""The command line: one file for each group of verbs, and what they share.

``main`` is the program. Modules here import typer and each other at the top and everything else
inside the verbs, so that help and completion answer at once. May import every other room.
"""
