"""The recipe of a system: its settings, their layers, the presets, and what ``auto`` chooses.

Training's settings are here too, so that reading a run loads no trainer. ``catalog`` lists
everything that a config can name. The room may import the ground, ``process``, ``data``, ``nn``,
``search`` and ``modalities``; importing it does not load torch.
"""
