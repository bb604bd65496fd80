"""Runs a snippet in a child process and brings back a Capture.

`launcher` is the parent's side and imports no tinygrad. `child`, `recorder`, `extract`, `programs` and `lines` run
in the child.
"""
