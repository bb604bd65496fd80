"""Ends a child when the tool that started it ends, even by SIGKILL. Runs in the child."""

from __future__ import annotations

import os
import signal
import threading


def hold(lifeline: int) -> None:
    """Watches the reading end of a pipe; the tool holds the other end. When it closes, the whole group of this process
    is killed. A negative number means no pipe."""
    if lifeline >= 0:
        threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()


def _watch(lifeline: int) -> None:
    try:
        os.read(lifeline, 1)
    except OSError:
        # the snippet closed it
        return
    # a child that was started by hand has no group of its own
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
