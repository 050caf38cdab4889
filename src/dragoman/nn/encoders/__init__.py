"""One encoder a file; the filename is the name."""
