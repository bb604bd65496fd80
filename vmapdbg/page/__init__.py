"""Turns a Capture, or a diff of two, into output for people. Nothing here knows tinygrad."""
