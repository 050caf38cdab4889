"""Search: one loop over a decoder for beam search, sampling and forced paths, with rules and a trace of every step.

``run`` holds the loop and is the door. Constraints on the text of outputs come in by ``constraints.lexicon``,
``constraints.formats`` and ``constraints.required``. May import the ground and ``process``; never ``nn``: a model and a
search meet only in the decoder's contract.
"""
