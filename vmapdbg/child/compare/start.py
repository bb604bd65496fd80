"""Starts the comparison (`checker`) at a low priority: run by the parent as `python -m vmapdbg.child.compare.start
REQUEST` when the process of the snippet starts.

Importing numpy takes long, and must not slow the snippet down. Linux only: elsewhere the priority stays as it is.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from pathlib import Path

_CHECKER = "vmapdbg.child.compare.checker"
_NICE = 10
"""How much lower the priority is."""
_GROUP = Path("/proc/self/autogroup")
"""Where Linux keeps the priority of a session among all sessions; the priority of a thread counts only in its session.
The tool starts each child in a session of its own."""


def main() -> None:
    # only a thread can get its priority back
    importer = threading.Thread(target=_import_checker)
    importer.start()
    importer.join()
    # from here on the session works for the snippet: on a busy machine it must not wait for all other sessions
    set_session_priority(0)
    importlib.import_module(_CHECKER).main()


def _import_checker() -> None:
    lower_thread()
    set_session_priority(_NICE)
    importlib.import_module(_CHECKER)


def lower_thread() -> None:
    """Lowers the priority of this thread in its session."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)


def set_session_priority(nice: int) -> None:
    """Sets the priority of this session among all sessions; 0 is the usual one."""
    if sys.platform == "linux":
        # the file may be missing, and Linux refuses changes that follow each other quickly
        with contextlib.suppress(OSError):
            _GROUP.write_text(str(nice), encoding="ascii")


if __name__ == "__main__":
    main()
