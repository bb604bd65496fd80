"""Looks after the thread that runs the snippet: says what it rewrites, and ends a rewrite that would never end.

It looks a few times a second from a thread of its own, so that tinygrad's own loop has nothing to count. Whether a
rewrite is endless is told from its state, and not from how long it takes.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from vmapdbg.child.failures.endless import Endless, EndlessRewrite, find_endless, find_loop
from vmapdbg.child.failures.rewrites import name_rewrite

_PERIOD = 0.3
"""Seconds between two looks."""
_LONG = 2.0
"""Seconds after which it is said what is being rewritten."""


def _say_nothing(found: Endless, loop: FrameType) -> None:
    pass


class Watcher:
    """Watches the thread that it is made in, from `start` on. `tell` gets a line about a rewrite that takes long, and
    an empty one when it is done; `ends` is called before a rewrite is stopped, with the frame of tinygrad's loop. It
    looks every `period` seconds."""

    def __init__(
        self,
        tell: Callable[[str], object],
        ends: Callable[[Endless, FrameType], object] = _say_nothing,
        period: float = _PERIOD,
    ) -> None:
        self.tell, self.ends, self.period, self._watched = tell, ends, period, threading.get_ident()
        self._ended = threading.Event()
        self._context: Any = None
        self._suspected: Endless | None = None
        self._looks = 0
        self._told = False

    def start(self) -> None:
        threading.Thread(target=self._watch, name="vmapdbg", daemon=True).start()

    def stop(self) -> None:
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(self.period):
            loop = find_loop(sys._current_frames().get(self._watched))
            context = None if loop is None else loop.f_locals.get("self")
            self._look(loop, context)
            # the rewrite may have ended meanwhile: nothing of it is kept
            loop = context = None

    def _look(self, loop: FrameType | None, context: Any) -> None:
        suspected = self._suspected
        if loop is None or context is not self._context:
            self._context, self._looks = context, 0
            if self._told:
                self.tell("")
            self._told = False
            return
        self._looks += 1
        found, self._suspected = find_endless(loop), None
        if found is not None and (found.growing is not None or found.is_same(suspected)):
            self.ends(found, loop)
            end_thread(self._watched, found)
            self._context = None
        elif found is not None:
            self._suspected = found
        elif self._looks * self.period >= _LONG:
            self.tell(f"{name_rewrite(loop)}, {len(context.replace):,} nodes done")
            self._told = True


def end_thread(thread: int, found: Endless) -> None:
    """Raises EndlessRewrite in a thread."""
    kind = type("EndlessRewrite", (EndlessRewrite,), {"found": found, "__module__": "vmapdbg"})
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))
