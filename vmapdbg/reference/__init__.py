"""What a tensor graph should compute, by numpy: a reference that has nothing of tinygrad but the meaning of its ops.

A graph comes in a form of its own (`graph`), which the child packs. Nothing here knows tinygrad, and no scheduler, code
generator or compiler takes part.
"""
