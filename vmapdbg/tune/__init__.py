"""Finds edits of the user's source that could make a program faster or smaller: `vmapdbg tune`. No tinygrad."""
