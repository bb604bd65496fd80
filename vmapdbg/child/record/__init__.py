"""The observer: keeps what the scheduler decides while the snippet runs."""
