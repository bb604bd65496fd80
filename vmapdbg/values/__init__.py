"""Arrays of numbers, and when two numbers are the same: what diff, check and the reducer compare with.

Nothing here knows tinygrad. All but `tolerance` imports numpy, which the commands that compare nothing must not wait
for.
"""
