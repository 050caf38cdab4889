"""Exports: a trained run as files that other programs can run, each with a check that it still says the same.

One file per format. May import ``inference`` and what that may import; never ``training``.
"""
