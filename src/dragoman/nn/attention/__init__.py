"""One score a file; the filename is the name."""
