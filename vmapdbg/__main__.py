"""Starts the command line: `vmapdbg` and `python -m vmapdbg`."""

import os
import signal


def main() -> None:
    """Runs the command line. Ctrl-C ends it with exit code 130, also while modules are imported."""
    is_watched = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_watched:
        signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))
    from vmapdbg.commands.cli import main as run

    if is_watched:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
