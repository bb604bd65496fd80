"""Turns a Capture into output for people. Nothing here knows tinygrad."""

from vmapdbg.render.text import SECTIONS, print_capture, print_patches

__all__ = ["SECTIONS", "print_capture", "print_patches"]
