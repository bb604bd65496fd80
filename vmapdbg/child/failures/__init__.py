"""Where tinygrad itself fails or does not end, and what it was busy with. Runs in the child."""
