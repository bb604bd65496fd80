"""What is typed: one module for each command, and what they share."""
