"""Compares the values of a schedule with the right values, which `vmapdbg.child.compare.checker` computes."""
