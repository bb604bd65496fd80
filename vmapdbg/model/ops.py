"""What the ops of a tensor graph do, as far as several parts have to know."""

from __future__ import annotations

MOVEMENT = frozenset({"RESHAPE", "PERMUTE", "EXPAND", "PAD", "SHRINK", "FLIP", "VIEW", "DETACH", "CONTIGUOUS_BACKWARD"})
"""Those that only move a value, and compute nothing."""
