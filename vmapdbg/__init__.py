"""vmapdbg: see what tinygrad's scheduler did to a program, and why."""

__version__ = "0.1.0"
