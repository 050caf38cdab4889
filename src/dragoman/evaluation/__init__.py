"""Measure trained systems: metrics with intervals, evaluation on a file, comparison of two systems.

``metrics/`` knows texts and numbers only; a new metric goes there. The other modules decode with a
system first. May import the ground, ``data``, ``recipe``, ``runs`` and ``inference``, but never
``training``.
"""
