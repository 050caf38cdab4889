"""Training throughput of one recurrent model, in Dragoman and in others, side by side."""
