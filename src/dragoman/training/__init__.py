"""Training: from files to a trained run.

``plan`` decides everything before the first update; the trainer computes and yields events; the
writer records them in the run's folder; ``display`` shows them; ``run`` joins these, and ``verbs``
is its door for Python. Several runs: ``pool`` trains them side by side in worker processes,
``seeds`` the same model with several seeds, ``race`` decides which of several candidates train on,
``sweep`` races all combinations of a grid (``sweep.page`` is the page of its results), and
``group_display`` shows their progress. The room may import the ground, ``process``, ``data``,
``nn``, ``search``, ``modalities``, ``recipe``, ``runs``, ``drawing``, ``inference`` and
``evaluation``.
"""
