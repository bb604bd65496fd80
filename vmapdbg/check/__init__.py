"""Compares what a schedule computed with what it should have: values, tolerances, patterns, and who is to blame.

Nothing here knows tinygrad. `vmapdbg.capture.oracle` computes the values that are compared.
"""
