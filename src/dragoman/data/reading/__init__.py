"""Files in, examples and their audit out: formats, columns, lines."""
