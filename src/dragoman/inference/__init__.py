"""Inference: what a trained run can do, and the one door through which everybody asks it.

A ``System`` is a run ready to answer, and immutable. A ``Session`` is a system with search settings: it prepares
inputs, searches, scores given outputs and looks inside. The command line, Python, the studio and evaluation all ask a
session. The room may import the ground, ``process``, ``data``, ``nn``, ``search``, ``modalities``, ``recipe``,
``runs`` and ``drawing``; never ``training``: what answers people does not load an optimiser.
"""
