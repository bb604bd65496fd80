"""Computes by numpy what a tensor graph or a kernel should give. Nothing here imports tinygrad."""
