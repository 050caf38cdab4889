"""One decoder a file; the filename is the name."""
