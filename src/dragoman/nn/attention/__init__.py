"""Attention scores, one in each file; the filename is the kind. May import the rest of ``nn``."""
