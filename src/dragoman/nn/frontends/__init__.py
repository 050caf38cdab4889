"""The trained ends of the modalities, one kind per file: from padded arrays to vectors.

A modality names its kind in ``frontend_kind``. May import the ground, ``process`` and the rest of
``nn``.
"""
