"""Faults of tinygrad that the hunt found (`python -m tests.fuzz hunt`), one small program each, in `programs/`.

The head of a program has the cause, how it was found, and its result on each tinygrad (`ok` if it is right), which
`pytest tests/found` compares with the result now.
"""
