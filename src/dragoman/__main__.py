"""``python -m dragoman``: the same as ``dragoman``."""

from dragoman.cli.main import main

main()
