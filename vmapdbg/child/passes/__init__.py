"""Evaluates the outputs of a schedule after each pass of tinygrad's scheduler. Runs in the child."""
