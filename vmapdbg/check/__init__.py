"""Compares what a schedule computed with what it should have: values, tolerances, patterns, and who is to blame.

Nothing here knows tinygrad. `vmapdbg.child.compare.checker` computes the values that are compared.
"""
