"""Arrays of numbers, and when two numbers are the same: what diff, check and the reducer compare with.

Nothing here knows tinygrad. Importing a module of this room imports numpy, which the commands that compare nothing
must not wait for.
"""
