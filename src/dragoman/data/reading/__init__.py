"""Tables in, examples and their audit out: every format makes a ``Table``, whose columns are then chosen."""
