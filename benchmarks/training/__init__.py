"""Measure the training throughput of recurrent models and a Transformer in Dragoman and in other toolkits."""
