"""Has what computes beside the snippet give way to it. Linux only: elsewhere nothing is done."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from pathlib import Path

_NICE = 10
"""How much lower the priority is while the snippet runs."""
_GROUP = Path("/proc/self/autogroup")
"""Where Linux schedules each session as one, the priority of this session among the others: that of a thread counts
only within its own. The tool starts each child in a session of its own."""


def lower_priority() -> None:
    """Has this thread, and this session, give way to others."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
        _set_group(_NICE)


def restore_priority() -> None:
    """Has this session be one as any other again. A thread keeps the priority that it has."""
    if sys.platform == "linux":
        _set_group(0)


def _set_group(nice: int) -> None:
    # it is not there, or was changed a moment ago
    with contextlib.suppress(OSError):
        _GROUP.write_text(str(nice), encoding="ascii")
