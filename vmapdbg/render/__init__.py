"""Turns a Capture, or a diff of two, into output for people. Nothing here knows tinygrad."""

from vmapdbg.render.text.capture import SECTIONS, print_capture, print_patches
from vmapdbg.render.text.diff import print_diff

__all__ = ["SECTIONS", "print_capture", "print_diff", "print_patches"]
