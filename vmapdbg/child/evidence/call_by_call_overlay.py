"""A program on patched tinygrad, call by call."""

from __future__ import annotations

from collections.abc import Callable

from vmapdbg.child.evidence.call_by_call import BetweenCalls, CallByCall, watch_rewrites
from vmapdbg.child.evidence.overlay import OverlayCollector
from vmapdbg.child.evidence.suite_folder import SuiteFolder
from vmapdbg.child.listen.overlay_recorder import Recorder
from vmapdbg.child.live import observe_with


class JudgedRecorder(BetweenCalls, Recorder):
    """Has the schedules from the overlay, which is installed already."""


class JudgedCollector(CallByCall, OverlayCollector):
    """Has the evidence from 0.12.0's own names."""


def start(folder: SuiteFolder) -> Callable[[], None]:
    """Has what this process realizes handed on. Returns what is to be called when the process ends."""
    recorder = JudgedRecorder(folder)
    collector = JudgedCollector(folder, recorder)
    recorder.watch = collector.watch
    observe_with(recorder)
    watch_rewrites(folder, recorder)
    return collector.close
