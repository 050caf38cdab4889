"""Layers that several parts are built from. May import the ground, ``process`` and ``kernels``."""
