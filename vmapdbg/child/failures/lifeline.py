"""Ends a child with the tool that started it, however that ended: SIGKILL, too. Runs in the child."""

from __future__ import annotations

import os
import signal
import threading


def hold(lifeline: int) -> None:
    """Watches the reading end of a pipe whose other end the tool holds. When that is gone, the whole group of this
    process is killed. Does nothing where there is no pipe."""
    if lifeline >= 0:
        threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()


def _watch(lifeline: int) -> None:
    try:
        os.read(lifeline, 1)
    except OSError:
        # the snippet has closed what it does not know
        return
    # only a group of our own: it is not if somebody starts the child by hand
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
