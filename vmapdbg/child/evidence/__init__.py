"""What `check` compares: the graphs of a snippet, and what its buffers held."""
