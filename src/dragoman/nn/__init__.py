"""Everything that computes with tensors: the model, its parts, and the kernels below them.

A part is one file in ``frontends``, ``encoders``, ``attention`` or ``decoders``; ``contracts.py``
says what each kind of part promises. There are no files, strings, logging, optimizers or start and
end symbols here. May import the ground and ``process``.
"""
