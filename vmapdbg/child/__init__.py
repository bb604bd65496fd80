"""Everything that runs with tinygrad imported: in the snippet's process, or in one that computes its values again."""
