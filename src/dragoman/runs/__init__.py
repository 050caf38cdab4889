"""A run on disk: its folder, its setup, its weights, its history and its model card.

``bounds`` compares a config from anyone with the weights beside it. The room takes and gives plain
records; it knows neither systems nor trainers. It may import the ground, ``process``, ``data``,
``nn``, ``search``, ``modalities`` and ``recipe``.
"""
