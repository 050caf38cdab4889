"""``python -m dragoman``: the same as ``dragoman``."""

from dragoman.cli import main

main()
