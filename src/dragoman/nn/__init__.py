"""Modules that compute: no files, strings, logging, loss, optimiser or start and end symbols in here."""
