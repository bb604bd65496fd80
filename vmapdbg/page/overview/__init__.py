"""What a whole run comes to, as data: which kernels, lines of the user and reasons make up most of it.

    kernels.py   what kernels come to together, and equal ones as one
    lines.py     what each line of the user's code comes to
    methods.py   what each method of Tensor that is called comes to
    decisions.py how often each rule realized a node, kept or removed a buffer, and left a reduce whole
    selection.py the part of a run that somebody asks for
    changes.py   what changed between two runs, and what that comes to

All of it comes from a Capture, and needs no tinygrad.
"""
