"""The kinds of input, one per file: they turn a text, or the path of a file, into a numpy array.

Everything that knows one kind of input is here, except its trained end, which is in
``nn/frontends``. May import the ground and ``data``; never torch.
"""

from dragoman.data.modality import Modality

__all__ = ["Modality"]
