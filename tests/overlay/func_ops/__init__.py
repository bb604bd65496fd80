"""The table of ops that `tinygrad.func` is tried on: vmap, gradient and jvp of each, against single elements.

ops.py          what an op is, and the single ops
table.py        all ops: networks and programs of several ops, too
cases.py        op x axis x depth x mode, how to run each, and the oracle
__main__.py     all cases, from the root of the checkout: `python -m tests.overlay.func_ops`
"""
