"""Arrays of numbers, and when two numbers are the same: what diff, check and the reducer compare with.

Nothing here knows tinygrad. All but `itemsize` and `tolerance` import numpy, which what compares nothing must not wait
for.
"""
