"""Results as text for a terminal, a pipe or a log."""
