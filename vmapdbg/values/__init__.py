"""Arrays of numbers, and when two numbers are the same: what diff, check and the reducer compare with.

Nothing here knows tinygrad. `tolerance` does not import numpy, so commands that compare nothing start quickly.
"""
