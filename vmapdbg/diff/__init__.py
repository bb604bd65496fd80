"""Compares two captures: what the scheduler did differently, and the results. Nothing here knows tinygrad."""
