"""Sweeps: every combination of presets, settings and seeds, trained side by side and ranked by dev.

``grid`` reads what is to be combined, ``run`` trains it by a race of the candidates, ``results``
collects the scores, and ``page`` shows them.
"""
