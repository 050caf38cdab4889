"""Starting from other runs: the tokenizers and weights that a new run takes from them.

``origins`` opens the runs that a recipe names; ``weights`` copies their weights.
"""
