"""Engines: what computes the answers of a system. ``torch`` runs the trained model itself.

``contract`` says what an engine has to do. The sub-package may import what ``inference`` may.
"""
