"""Arrays of numbers, and when two numbers are the same: what diff, check and bisect compare with."""
