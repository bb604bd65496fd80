"""Turns what was recorded into the model: runs in the child, after the snippet."""
