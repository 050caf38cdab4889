"""``train --budget``: candidates race on the person's own dev rows, and the winner gets the rest of the time.

May import what ``training`` may.
"""
