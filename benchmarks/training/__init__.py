"""Training throughput of a recurrent model and of a Transformer, in Dragoman and in others, side by side."""
