"""Answering requests of others: limits, queues, a guard at the door, and the server ``dragoman serve``.

Every server of the package uses these: ``limits`` says once how much a request may ask for,
``queue`` computes answers in turns, ``guard`` refuses requests before anything reads them,
``connections`` keeps slow and broken connections from staying, ``questions`` reads a request and
waits for its answer, ``problems`` and ``records`` are the shape of answers, ``uploads`` writes files.

``server`` is ``dragoman serve``: its ``application`` checks requests (``asking``, ``forms``,
``translation``) and submits their inputs to ``batching``, whose batches the processes of ``workers``
``compute``. ``client`` asks such a server from Python, and needs nothing else of this room.

The room may import every room below it but ``training``: what answers people loads no optimiser.
"""
