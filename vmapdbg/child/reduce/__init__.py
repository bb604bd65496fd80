"""Makes a small snippet of a large one that shows the same difference."""
