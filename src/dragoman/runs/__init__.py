"""A run on disk: its folder, its setup, its weights, its history and its model card.

The room takes and gives plain records; it knows neither systems nor trainers. It may import the
ground, ``process``, ``data``, ``nn``, ``search``, ``modalities`` and ``recipe``.
"""
