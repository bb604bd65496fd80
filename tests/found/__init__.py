"""Faults of tinygrad that the hunt found (`python -m tests.fuzz hunt`), one small program each, in `programs/`.

The head of a program has the cause, how it was found, and its result on each tinygrad. `python -m tests.found` writes
the results, and `pytest tests/found` compares them with the results now.
"""
