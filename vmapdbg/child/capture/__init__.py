"""Turns what was recorded into the model: runs in the child, after the snippet.

`overlay.build_schedules` does it for the overlay's records, `observed.build_schedules` for those of an observer of
stock tinygrad. Both look through a View (view.py): nodes, ranges and buffers are built by the same code.
"""
