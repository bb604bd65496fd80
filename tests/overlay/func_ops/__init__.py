"""The table of ops that `tinygrad.func` is tried on: vmap, gradient and jvp of each, against stock tinygrad.

data.py         one element of an argument
elementwise.py, reductions.py, movement.py, indexing.py, networks.py, patterns.py    the ops
table.py        all ops, and the cases that are known not to work
oracle.py       a program that runs without the overlay: each single element by stock tinygrad
cases.py        op x axis x depth x mode, and how to run each
__main__.py     all cases, from the root of the checkout: `python -m tests.overlay.func_ops`
"""
