"""Runs before tinygrad is imported: the import hook, the overlay, any tinygrad, the job of a child process."""
