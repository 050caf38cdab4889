"""Drawing: where a model looked, as a picture: an alignment of tokens, light over a picture, bands below a spectrogram.

Takes plain records and arrays, and gives bytes or text to be written. May import the ground, ``process``, ``data``,
``nn``, ``search``, ``modalities``, ``recipe`` and ``runs``; in fact it needs the ground alone.
"""
