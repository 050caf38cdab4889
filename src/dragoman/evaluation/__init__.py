"""Measure trained systems: metrics with intervals, evaluation on a file, comparison of systems.

``metrics/`` knows texts and numbers only; a new metric goes there. The other modules decode with a
system first. Others come in through ``evaluate``, ``compare`` (two systems, row by row) and
``several`` (any number of runs or groups of seeds). May import the ground, ``data``, ``recipe``,
``runs`` and ``inference``, but never ``training``.
"""
