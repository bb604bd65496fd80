"""Has what computes beside the snippet give way to it. Linux only: elsewhere nothing is done."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from pathlib import Path

_NICE = 10
"""How much lower the priority is."""
_GROUP = Path("/proc/self/autogroup")
"""Where Linux schedules each session as one, the priority of this session among the others: that of a thread counts
only within its own. The tool starts each child in a session of its own."""


def lower_thread() -> None:
    """Has this thread give way to others of its session."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


def lower_session() -> None:
    """Has this session give way to others."""
    _set_session(_NICE)


def restore_session() -> None:
    """Has this session be one as any other again."""
    _set_session(0)


def _set_session(nice: int) -> None:
    if sys.platform == "linux":
        # it is not there, or was changed a moment ago
        with contextlib.suppress(OSError):
            _GROUP.write_text(str(nice), encoding="ascii")
