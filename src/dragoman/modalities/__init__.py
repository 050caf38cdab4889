"""One kind of input a file; the filename is the name."""
