"""Reduces a snippet to a small one that shows the same difference."""
