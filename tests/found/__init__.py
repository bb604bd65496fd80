"""Faults of tinygrad that the hunt found (`python -m tests.fuzz hunt`), one small program each, in `programs/`.

The head of a program says the cause, by what it was found, and what comes of it on each tinygrad: the last are
written by `python -m tests.found`, and `pytest tests/found` compares them with what comes of it now.
"""
