"""Answering requests of others: limits, a queue, and a guard at the door.

Four modules are the doors for servers: ``limits`` says once how much a request may ask for,
``queue`` computes the answers in turns, ``guard`` refuses requests before anything reads them, and
``connections`` keeps slow and broken connections from staying. ``questions`` joins them: it reads
a request, and waits for its answer. The room may import every room below it but ``training``: what
answers people loads no optimiser.
"""
