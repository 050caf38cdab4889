"""Constraints on the text of outputs: entries of a lexicon, a format, phrases that have to occur. Each is a hard rule.

A rule reads the bytes that tokens spell (``types.Spelling``), so it holds for the text, however that is divided into
tokens. May import the ground and ``search``.
"""
