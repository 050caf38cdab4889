"""Where each word of an output comes from: links to source words, times in a recording, boxes in a picture.

All of it is read from the attention of the output that was returned; times come from CTC where a run has it.
"""
