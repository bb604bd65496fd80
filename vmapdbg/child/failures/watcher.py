"""Watches the thread that runs the snippet: reports what it rewrites, and ends a rewrite that would never end.

A second thread looks a few times a second. The state of a rewrite decides whether it never ends, not its time.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from vmapdbg.child.failures.endless import Endless, EndlessRewrite, find_endless, find_loop
from vmapdbg.child.failures.rewrites import find_rewrite
from vmapdbg.model.wording import format_known

_PERIOD = 0.3
"""Seconds between two looks."""
_LONG = 2.0
"""Seconds after which the watcher reports the rewrite."""


class Watcher:
    """Watches the thread that creates it, from `start` on, every `period` seconds.

    `tell` gets a line about a rewrite that takes long, and an empty line when the rewrite is done. `ends` is called
    before a rewrite is stopped, with the frame of tinygrad's loop.
    """

    def __init__(
        self,
        tell: Callable[[str], object],
        ends: Callable[[Endless, FrameType], object] | None = None,
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
            # keep nothing of a rewrite that has ended
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
            if self.ends is not None:
                self.ends(found, loop)
            end_thread(self._watched, found)
            self._context = None
        elif found is not None:
            self._suspected = found
        elif self._looks * self.period >= _LONG:
            entry = find_rewrite(loop)
            name = entry and entry.f_locals.get("name")
            self.tell(f"rewriting a graph{format_known(' ({})', name)}, {len(context.replace):,} nodes done")
            self._told = True


def end_thread(thread: int, found: Endless) -> None:
    """Raises EndlessRewrite in a thread."""
    kind = type("EndlessRewrite", (EndlessRewrite,), {"found": found, "__module__": "vmapdbg"})
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(kind))
