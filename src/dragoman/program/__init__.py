"""Programs: how a trained model computes in use, as plain data that every engine can read.

``table`` lists the operations and defines ``Program``; ``build`` collects the operations while the
parts of a model lower themselves; ``reference`` runs a program with numpy.
This is ground: everyone may import it, and it imports only the ground and numpy.
"""
