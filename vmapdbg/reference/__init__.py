"""Computes by numpy what a tensor graph or a kernel should give.

The child packs them in a form that no tinygrad release owns (`graph`). Nothing here imports tinygrad: no scheduler,
code generator or compiler takes part, only the meaning of the ops.
"""
