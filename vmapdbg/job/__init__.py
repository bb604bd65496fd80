"""What is asked for: a run of a snippet with some patches, for a target."""
