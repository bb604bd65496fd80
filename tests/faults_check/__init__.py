"""What `check` finds of the faults of tests/faults: each is planted, the program runs, an oracle judges."""
