"""Runs a user's program to its end, for the commands that have something to say afterwards."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence


def run_program(program: Sequence[str], environment: dict[str, str]) -> int:
    """Runs `python PROGRAM` and returns its exit code; 128 + the signal that killed it, as a shell says it."""
    process = subprocess.Popen([sys.executable, *program], env=environment)
    # Ctrl-C goes to the program as well, which decides what it does with it
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        status = process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
        process.kill()
    return 128 - status if status < 0 else status
